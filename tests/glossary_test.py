#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# docs/glossary.md has at most 55 nouns, one entry each, of at most two sentences. The file that owns
# a noun is there and has the words of it. What is wrong with a glossary is noticed.
#
# usage: glossary_test.py [ROOT]

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
MOST = 55
ENTRY = re.compile(r"\*\*([a-z ]+)\*\* — (.+\.) \[(.+)\]\(\.\./(.+)\)")

# Words that had several meanings, and the rooms in which they are not used for another than is left.
STRAY = {
    "park": "agent base broker/buffer broker/channel broker/client broker/config broker/device"
            " broker/log broker/membership broker/memory broker/names broker/orphan broker/pools"
            " broker/reply broker/request broker/socket memory ring wire",
    "token": "agent base broker/channel broker/membership broker/orphan libshare/channel"
             " libshare/receiver libshare/sender libshare/service memory pages ring",
    "settle": "agent base broker/buffer broker/client broker/config broker/device broker/memory"
              " broker/names broker/pools broker/reply broker/report broker/request broker/socket"
              " libshare/buffer libshare/client libshare/handover libshare/order libshare/pool libshare/segment"
              " libshare/service memory pages ring tools",
}

# Words of plain sentences that structs and their members were called by, each with a meaning of its
# own, and the rooms that have no such names any more.
PLAIN = {
    "keep|keeps|kept": "agent base broker/accounts broker/buffer broker/channel broker/client"
                       " broker/config broker/device broker/journal broker/life broker/log"
                       " broker/membership broker/memory broker/monitor broker/names broker/order"
                       " broker/orphan broker/pools broker/reply broker/report broker/request"
                       " broker/rights broker/socket broker/suballocator memory pages wire",
    "asked": "agent base broker/accounts broker/buffer broker/channel broker/client broker/config"
             " broker/device broker/journal broker/life broker/log broker/membership broker/monitor"
             " broker/names broker/order broker/orphan broker/reply broker/report broker/request"
             " broker/rights broker/socket broker/suballocator memory pages wire",
}


@functools.cache
def content(file):
    """None where there is no such file."""
    path = ROOT / file
    return path.read_text().lower() if path.is_file() else None


def entries(glossary):
    return [line for line in glossary.splitlines() if line.startswith("**")]


def check(glossary):
    """What is wrong with it."""
    wrong, known = [], set()
    for line in entries(glossary):
        found = ENTRY.fullmatch(line)
        if not found:
            wrong.append(f"not '**noun** — What it is. [file](../file)': {line}")
            continue
        noun, told, file, link = found.groups()
        if noun in known:
            wrong.append(f"{noun} has two entries")
        known.add(noun)
        if file != link:
            wrong.append(f"{noun}: the link leads elsewhere")
        if len(re.findall(r"\.(?: |$)", told)) > 2:
            wrong.append(f"{noun} takes more than two sentences")
        if content(file) is None:
            wrong.append(f"{noun}: there is no {file}")
            continue
        wrong += [f"{noun}: {file} knows no '{word}'"
                  for word in noun.split() if word.removesuffix("s") not in content(file)]
    n = len(entries(glossary))
    if n == 0:
        wrong.append("no noun was found")
    if n > MOST:
        wrong.append(f"{n} nouns are more than {MOST}")
    return wrong


def strays():
    patterns = [(word, rf"(?<![a-z])(un|is_)?{word}(s|ed|ing)?(?![a-z])", rooms) for word, rooms in STRAY.items()]
    patterns += [(word, rf"(struct |->)({word})\b", rooms) for word, rooms in PLAIN.items()]
    for word, pattern, rooms in patterns:
        for room in rooms.split():
            for path in sorted((ROOT / room).rglob("*.[ch]")):
                file = path.relative_to(ROOT).as_posix()
                for n, line in enumerate(content(file).splitlines(), 1):
                    if re.search(pattern, line):
                        yield f"{file}:{n}: {word}: docs/glossary.md says what to say instead"


glossary = (ROOT / "docs/glossary.md").read_text()
wrong = check(glossary) + list(strays())
for pattern, text, message in (
        (r"^\*\*lease\*\*", "**buffer**", "buffer has two entries"),
        (r"^\*\*fence\*\*", "**hedge**", "knows no 'hedge'"),
        (r"/fence\.h", "/hedge.h", "there is no include/share/hedge.h"),
        (r"^(\*\*(?:pool|pidfd|kind).*\n)", r"\1\1\1\1", "nouns are more than")):
    changed = re.sub(pattern, text, glossary, flags=re.MULTILINE)
    if changed == glossary:
        wrong.append(f"nothing was changed to see whether it is noticed: {message}")
    elif not any(message in said for said in check(changed)):
        wrong.append(f"not noticed: {message}")
print(*(wrong or [f"{len(entries(glossary))} nouns"]), sep="\n")
sys.exit(bool(wrong))
