#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# The walks of docs/tour.md are still those of the code: each function is defined in the file that
# is named beside it, and does in its body what the tour says: it calls the functions that it "calls",
# and sends the messages that it "sends". A function that is elsewhere or calls something else is
# noticed.
#
# usage: tour_test.py [ROOT]

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
STEP = re.compile(r" *[0-9]+\. `([a-z_]+)\(\)` in \[(.+)\]\(\.\./(.+)\)  ")


@functools.cache
def content(file):
    """None where there is no such file."""
    path = ROOT / file
    return path.read_text() if path.is_file() else None


@functools.cache
def body(function, file):
    """From its name to the brace that ends it; None where it is not defined."""
    found = re.search(rf"^[a-z][^\n]*[ *]{function}\((?:[^;{{]*)\{{.*?^\}}", content(file), re.DOTALL | re.MULTILINE)
    return found and found[0]


def steps(tour):
    """(first line, what is said) of each."""
    said = []
    for line in tour.splitlines():
        if re.match(r" *[0-9]+\. ", line):
            said.append([line, ""])
        elif not line or line.startswith("#"):
            said.append(None)
        elif said and said[-1]:
            said[-1][1] += " " + line
    return [step for step in said if step]


def check(tour):
    """What is wrong with it."""
    wrong = []
    for line, text in steps(tour):
        found = STEP.fullmatch(line)
        if not found or found[2] != found[3]:
            wrong.append(f"not 'N. `function()` in [file](../file)' with two spaces behind: {line}")
            continue
        function, file = found[1], found[2]
        if content(file) is None:
            wrong.append(f"{function}(): there is no {file}")
            continue
        does = body(function, file)
        if not does:
            wrong.append(f"{function}() is not defined in {file}")
            continue
        for calls in re.findall(r"calls[^.:;]*", text):
            wrong += [f"{function}() in {file} does not call {other}()"
                      for other in re.findall(r"`([a-z_]+)\(\)`", calls) if not re.search(rf"\b{other}\(", does)]
        wrong += [f"{function}() in {file} does not send {other}"
                  for other in re.findall(r"sends[^.:;`]*`([A-Z_]+)`", text)
                  if not re.search(rf"\bWIRE_{other}\b", does)]
    if len(steps(tour)) < 20:
        wrong.append(f"{len(steps(tour))} steps are no tour")
    return wrong


tour = (ROOT / "docs/tour.md").read_text()
wrong = check(tour)
for text, other, message in (
        ("`share_alloc_with()` in", "`share_allocate()` in", "share_allocate() is not defined in"),
        ("calls `lease_grant()`", "calls `lease_return()`", "does not call lease_return()"),
        (", and `order_or_stash()`", ", and `share_ack()`", "does not call share_ack()"),
        ("sends `ALLOC`", "sends `PUBLISH`", "does not send PUBLISH")):
    changed = tour.replace(text, other)
    if changed == tour:
        wrong.append(f"nothing was changed to see whether it is noticed: {message}")
    elif not any(message in said for said in check(changed)):
        wrong.append(f"not noticed: {message}")
print(*(wrong or [f"{len(steps(tour))} steps"]), sep="\n")
sys.exit(bool(wrong))
