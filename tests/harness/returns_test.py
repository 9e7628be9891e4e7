#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""returns.py checks each function that the library lets out and that returns an int, and knows what the
words of the comments mean. So a header that says something else is noticed, whether here or by a test
that gets an answer which is on no page any more.

usage: returns_test.py ROOT"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

root = Path(sys.argv[1])
include = root / "include/share"
failed = False


def wrong(text):
    global failed
    print(text)
    failed = True


def run(what, *folders):
    return subprocess.run([root / "tests/harness/returns.py", what, *folders], capture_output=True, text=True, timeout=60)


def lists(*folders):
    """Of each function, the errors that its check lets through."""
    made = run("C", *folders)
    return {
        function: set(errors.split(", ")[:-1])
        for errors, function in re.findall(r'list\[\] = \{(.*?)\};\s*return check_returned\("(\w+)"', made.stdout)
    }


def edited(edit, header="channel.h"):
    """The headers, one of which is another one."""
    folder = Path(scratch, "share")
    folder.mkdir(exist_ok=True)
    for h in include.glob("*.h"):
        (folder / h.name).write_text(edit(h.read_text()) if h.name == header else h.read_text())
    return folder


with tempfile.TemporaryDirectory() as scratch:
    all_text = "".join(h.read_text() for h in [*include.glob("*.h"), *include.glob("private/*.h")])
    out = set(re.findall(r"^\t(share_\w+);$", (root / "libshare/libshare.map").read_text(), re.M)) - {"share_first_copy"}
    ints = {name for name in out if re.search(rf"^int {name}\(", all_text, re.M)}
    here = lists(include, include / "private")
    for name in sorted(ints - set(here)):
        wrong(f"what {name}() returns is not checked")
    options = set(run("OPTIONS", include, include / "private").stdout.split())
    if options != {f"--wrap={name}" for name in here}:
        wrong("the linker's options are of other functions than the checks")
    if len(ints) < 60 or "SHARE_EINTR" not in here["share_recv_many"] or "SHARE_EEXIST" in here["share_ping"]:
        wrong(f"these cannot be all functions, or their pages: {sorted(here)}")
    # from another page, by its words and by its details
    for name, other in ("share_recv_many", "share_recv"), ("share_alloc_with", "share_alloc"):
        page = re.search(rf"/\*\*((?:(?!\*/).)*)\*/\s*static inline int {other}\(", all_text, re.S)[1]
        if not set(re.findall(r"@retval (SHARE_E\w+)", page)) <= here[name]:
            wrong(f"{name}() may not answer what {other}() answers")
    less = lists(edited(lambda text: re.sub(r"^ \* @retval SHARE_EINTR .*\n", "", text, flags=re.M)))
    if "SHARE_EINTR" in less["share_recv_many"] or "SHARE_EINTR" not in here["share_recv_many"]:
        wrong("a number that is on no page any more is let through")
    unlike = run("OPTIONS", edited(lambda text: re.sub(r"(Sends a buffer .*?) \* @retval SHARE_EACCES .*?\n", r"\1", text, count=1, flags=re.S)))
    if unlike.returncode == 0 or "share_send" not in unlike.stderr:
        wrong("a short form whose page is unlike that of its function is not noticed")
    # a page stands alone: what is to be initialised says so there, and errors are named, not counted
    sized = dict(re.findall(r"^typedef struct (share_\w+) \{\n\tsize_t size;.*?^#define (SHARE_\w+_INIT)\b", all_text, re.M | re.S))
    if len(sized) < 15:
        wrong(f"these cannot be all structs that begin with their size: {sorted(sized)}")

    def unsaid(text):
        """Structs that a function fills in, though its page does not say by what they are to be initialised."""
        for page, declaration in re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*((?:static inline )?int share_\w+\([^;{]*\));", text, re.S):
            for struct in re.findall(r"(?:, |\()(share_\w+) \*out\b", " ".join(declaration.split())):
                if struct in sized and sized[struct] not in page:
                    yield re.search(r"share_\w+(?=\()", declaration)[0]

    public_text = "".join(h.read_text() for h in include.glob("*.h"))
    for name in unsaid(public_text):
        wrong(f"the page of {name}() does not say what `out` is to be set to")
    if not list(unsaid(public_text.replace("SHARE_MESSAGE_INIT", ""))):
        wrong("a page that does not say what `out` is to be set to is not noticed")
    for counted in re.findall(r"[Tt]he (?:first|last) (?:\w+ )?errors\b", public_text):
        wrong(f'a page says "{counted}": the next one that is added makes it wrong')
sys.exit(failed)
