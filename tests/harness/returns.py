#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What public functions may return, of the comments in the headers, as a test's own functions in C.

usage: returns.py C|OPTIONS INCLUDE...

C: for each function that returns an int, __wrap_FUNCTION() calls it and has check_returned() look whether
the answer is on its page. OPTIONS: for the linker, so that all calls of a program go that way.

On the page of a function are the numbers of its @retval, and those of another one where it says "the
errors of share_other()" or has its details. Any function may answer those of ANY, and one that takes a
stream those of STREAM, as docs/api.md says.
A number above 0 is for functions with an @return. What a program's callback has returned is for the
functions that say so. A short form ("static inline") has the same page as the function that it calls,
unless that takes options."""

import re
import sys
from pathlib import Path

ANY = {"SHARE_EINVAL", "SHARE_EFORK", "SHARE_EDISCONNECTED", "SHARE_ENOMEM", "SHARE_ESYSTEM", "SHARE_EPROTO"}
STREAM = {"SHARE_EDEVICE", "SHARE_ENOTSUP", "SHARE_EAGAIN"}
COMMENTED = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*((?:static inline )?[\w ]+[ *]+(share_\w+)\((.*?)\));", re.S)
SHORT = re.compile(r"^static inline [^;{]*?(share_\w+)\([^;{]*\)\n\{\n(.*?)^\}", re.S | re.M)


class Function:
    def __init__(self, comment, declaration, name, parameters):
        words = " ".join(line.strip().removeprefix("*") for line in comment.splitlines())
        words = " ".join(words.split())
        self.name, self.short = name, declaration.startswith("static inline")
        self.declaration, self.parameters = " ".join(declaration.split()), " ".join(parameters.split())
        self.own = set(re.findall(r"@retval (SHARE_E\w+)", words))
        self.others = re.findall(r"(?:the errors of|@copydetails) (share_\w+)\(\)", words)
        self.counts = "@return" in words
        self.callback = "has returned" in words

    def errors(self, functions):
        return self.own.union(*(functions[other].errors(functions) for other in self.others))

    def arguments(self):
        """The names of its parameters; those of a callback's own are none of them."""
        text = re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", self.parameters)
        return ", ".join(re.search(r"(\w+)$", p.strip()).group(1) for p in text.split(",") if p != "void")


def read(headers):
    text = "".join(header.read_text() for header in headers)
    functions = {m[3]: Function(*m.groups()) for m in COMMENTED.finditer(text)}
    for name, body in SHORT.findall(text):
        called = re.findall(r"(?:r = |return )(share_\w+)\(", body)
        if called and name in functions and functions[name].declaration.startswith("static inline int"):
            here, there = functions[name].errors(functions), functions[called[0]].errors(functions)
            if here - ANY != there - ANY and name not in functions[called[0]].others:
                sys.exit(f"{name}() says that it may answer {sorted(here)}, but {called[0]}(), which it calls, {sorted(there)}")
    return functions


def wrapped(headers):
    functions = read(headers)
    for f in functions.values():
        if f.declaration.startswith("int "):
            yield f, sorted(f.errors(functions) | ANY | (STREAM if "void *stream" in f.parameters else set()))


def main():
    headers = [h for folder in sys.argv[2:] for h in sorted(Path(folder).glob("*.h"))]
    if sys.argv[1] == "OPTIONS":
        for f, _ in wrapped(headers):
            print(f"--wrap={f.name}")
        return
    for header in headers:
        print(f"#include <share/{'private/' if header.parent.name == 'private' else ''}{header.name}>")
    print('\n#include "tests/harness/returns.h"')
    for f, errors in wrapped(headers):
        for prefix in ("__real_", "__wrap_"):
            print(f"\n{f.declaration.replace(f.name, prefix + f.name, 1)};", end="")
        print(f"""
{f.declaration.replace(f.name, "__wrap_" + f.name, 1)}
{{
	static const int list[] = {{{", ".join(errors)}, 0}};

	return check_returned("{f.name}", __real_{f.name}({f.arguments()}), list, {int(f.counts)}, {int(f.callback)});
}}""")


main()
