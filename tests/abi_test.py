#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that was compiled before runs with the library of today.

tests/recorded/abi has the headers of then, without their comments, and a program. What they declare is still
so: the sizes of structs or more, where their members lie, numbers of enumerators and macros, prototypes. The
program is compiled with them, and runs with the library that was built. abicompat of libabigail, where it is
installed, compares the types that the program and the library have for what the program calls.

What may be otherwise: structs are longer at their end, beyond what was padding; there is more of everything.

usage: abi_test.py BUILD ROOT, with CC and SHARE_TEST_BIN set; abi_test.py record ROOT, for a release
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CC = os.environ.get("CC", "cc")
# What a release is called is no part of what it promises.
CHANGES = re.compile(r"SHARE_VERSION")
failed = False


def wrong(text):
    global failed
    print(text)
    failed = True


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def without_comments(text):
    text = re.sub(r"[ \t]*/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"\n\s*\n+", "\n", text)


def record(root):
    to = root / "tests/recorded/abi/include/share"
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for header in sorted((root / "include/share").glob("*.h")):
        (to / header.name).write_text("/* SPDX-License-Identifier: MIT */" + without_comments(header.read_text()))


class Headers:
    """What the headers of a folder declare, as the compiler has it."""

    def __init__(self, include, scratch):
        self.include = include
        self.all = "".join(f"#include <share/{h.name}>\n" for h in sorted((include / "share").glob("*.h")))
        source = scratch / "headers.c"
        source.write_text(self.all)
        text = " ".join(run(CC, "-E", "-P", "-I", include, source, check=True).stdout.split())
        self.structs = {}
        for name, body in re.findall(r"struct (share_\w+) \{(.*?)\}", text):
            self.structs[name] = re.findall(r"(\w+)(?:\[\w+\])*;", body)
        self.enumerators = [
            e.split("=")[0].strip() for body in re.findall(r"enum share_\w+ \{(.*?)\}", text) for e in body.split(",")
        ]
        self.enumerators = [e for e in self.enumerators if e]
        defined = run(CC, "-E", "-dM", "-I", include, source, check=True).stdout
        self.macros = [
            name
            for name, value in re.findall(r"^#define (SHARE_\w+) (.+)$", defined, re.M)
            if not CHANGES.match(name) and not name.endswith(("_INIT", "_H")) and "SHARE_NULL" != name
        ]
        bodies = re.sub(r"static inline [^;{}]*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "", text)
        self.prototypes = {
            name: whole.strip()
            for whole, name in re.findall(r"((?:const )?[a-z_0-9]+ \**(share_\w+)\([^;{}]*\));", bodies)
            if f"static inline {whole}" not in bodies
        }
        self.layout = self.numbers(scratch)

    def numbers(self, scratch):
        """All of that in numbers, by name."""
        lines = [f'S("sizeof {s}", sizeof(struct {s}))' for s in self.structs]
        lines += [
            f'S("{s}.{m}", offsetof(struct {s}, {m})) S("sizeof {s}.{m}", sizeof(((struct {s} *)0)->{m}))'
            for s, members in self.structs.items()
            for m in members
        ]
        lines += [f'S("{n}", {n})' for n in [*self.enumerators, *self.macros]]
        source = scratch / "numbers.c"
        source.write_text(
            f"#include <stdio.h>\n#include <stddef.h>\n{self.all}"
            '#define S(name, number) printf("%s %lld\\n", name, (long long)(number));\n'
            "int main(void) {\n" + "\n".join(lines) + "\nreturn 0; }\n"
        )
        made = run(CC, "-I", self.include, "-o", scratch / "numbers", source)
        if made.returncode:
            sys.exit(f"this does not compile:\n{made.stderr}")
        printed = run(scratch / "numbers", check=True).stdout.splitlines()
        return {name: int(number) for name, number in (line.rsplit(" ", 1) for line in printed)}


def compare(old, new):
    for name, number in old.layout.items():
        struct = name.removeprefix("sizeof ")
        found = new.layout.get(name)
        if found is None:
            wrong(f"{name} is gone")
        elif struct != name and struct in old.structs:
            grows = old.structs[struct][0] == "size" or struct.endswith(("_info", "_event"))
            if found < number or (found != number and not grows):
                wrong(f"{struct} had {number} bytes, and has {found}")
        elif found != number:
            wrong(f"{name} was {number}, and is {found}")
    for struct, members in new.structs.items():
        for m in members:
            if struct in old.structs and m not in old.structs[struct]:
                if new.layout[f"{struct}.{m}"] < old.layout[f"sizeof {struct}"]:
                    wrong(f"{struct}.{m} is new, and lies in what was padding")


def compare_prototypes(old, new, library, scratch):
    """The compiler compares two declarations of one function, and the linker looks whether it is there."""
    source = scratch / "prototypes.c"
    text = new.all + "".join(f"{p};\n" for p in old.prototypes.values())
    text += "typedef void function(void);\nfunction *const all[] = {\n"
    text += "".join(f"(function *){name},\n" for name in old.prototypes)
    source.write_text(text + "};\nint main(void) { return all[0] == 0; }\n")
    made = run(CC, "-I", new.include, "-o", scratch / "prototypes", source, "-L", library, "-lshare")
    if made.returncode:
        wrong(f"functions are declared otherwise, or are gone:\n{made.stderr}")


def run_program(old, library, scratch, recorded):
    program = scratch / "program"
    made = run(CC, "-g", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-I", old.include, "-o", program,
               recorded / "program.c", "-L", library, f"-Wl,-rpath,{library}", "-lshare")
    if made.returncode:
        wrong(f"the old program does not compile with its own headers:\n{made.stderr}")
        return
    ran = run(Path(os.environ["SHARE_TEST_BIN"]) / "share-run", "--", program)
    print(ran.stdout, end="")
    if ran.returncode:
        wrong(f"the old program fails:\n{ran.stderr}")
    if not shutil.which("abicompat"):
        print("abicompat (abigail-tools) is not here: nobody has compared the types of program and library")
        return
    compared = run("abicompat", "--weak-mode", "--no-show-locs", program, library / "libshare.so.0")
    # 8: something has changed, of which the old program's structs that have grown are a part
    if compared.returncode & ~8 or (compared.returncode and "incompatible" in compared.stdout):
        wrong(f"abicompat says {compared.returncode}:\n{compared.stdout}{compared.stderr}")


def breaks(old, edit, header, scratch, what):
    """Whether it is noticed that a header is otherwise."""
    global failed
    folder = scratch / "edited"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(old.include, folder)
    file = folder / "share" / header
    before = file.read_text()
    file.write_text(edit(before))
    if file.read_text() == before:
        sys.exit(f"{what}: this edits nothing")
    said, failed = failed, False
    sys.stdout = open(os.devnull, "w")
    compare(old, Headers(folder, scratch))
    sys.stdout = sys.__stdout__
    noticed, failed = failed, said
    return noticed


def main():
    root = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "record":
        return record(root)
    library, recorded = Path(sys.argv[1]).resolve() / "lib", root / "tests/recorded/abi"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        old, new = Headers(recorded / "include", scratch), Headers(root / "include", scratch)
        n = len(old.structs), len(old.enumerators), len(old.macros), len(old.prototypes)
        print("pinned: {} structs, {} enumerators, {} macros, {} prototypes".format(*n))
        if any(found < least for found, least in zip(n, (22, 80, 9, 95))):
            wrong("that cannot be all")
        compare(old, new)
        compare_prototypes(old, new, library, scratch)
        run_program(old, library, scratch, recorded)
        for header, one, other, noticed in (
            ("channel.h", "uint32_t depth;", "uint32_t wide, depth;", True),
            ("share.h", "SHARE_RDWR = 3", "SHARE_RDWR = 2", True),
            ("share.h", "uint32_t uses;", "uint64_t uses;", True),
            ("channel.h", "#define SHARE_MESSAGE_DATA_MAX 256", "#define SHARE_MESSAGE_DATA_MAX 512", True),
            ("share.h", "unsigned char bytes[32];", "unsigned char bytes[32]; int more;", True),
            ("share.h", "uint32_t reuse;\n} share_pool_info;", "uint32_t reuse, more;\n} share_pool_info;", True),
            ("channel.h", "uint32_t reserved;\n} share_channel_options;",
             "uint32_t reserved; uint64_t more;\n} share_channel_options;", False),
        ):  # fmt: skip
            if breaks(old, lambda text: text.replace(one, other), header, scratch, other) != noticed:
                wrong(f"{other}: {'nobody notices' if noticed else 'that is no break'}")
    sys.exit(failed)


main()
