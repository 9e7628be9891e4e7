#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# docs/orderings.md names every place where memory order is asked for: each function of the rooms
# below that has a fence, a barrier, or a load or store that is more than relaxed, on the side that it
# is of and with the word that it is about. What it names is there and still has one, and what it says
# that notices a missing one exists. An ordering that is added or taken away is noticed, unless the
# function has another one of the same word.
#
# usage: orderings_test.py [ROOT]

import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
ROOMS = ("ring/*", "ring/producer/*", "ring/consumer/*", "pages/*", "broker/channel/*", "broker/orphan/*",
         "broker/membership/*", "libshare/segment/*", "libshare/buffer/*", "libshare/pool/*",
         "libshare/handover/*", "libshare/channel/*", "libshare/sender/*",
         "libshare/receiver/*", "libshare/handle/*")

NAME = re.compile(r"`([\w/]+\.[ch]):(\w+)`")
CALL = re.compile(r"\b(?:(atomic_(?:load|store|exchange|fetch_\w+?|compare_exchange_(?:weak|strong)"
                  r"|thread_fence|signal_fence)(?:_explicit)?|__atomic_\w+)|(ring_barrier|membarrier|syscall)) *\(")
STRONG = re.compile(r"memory_order_(?:acquire|release|acq_rel|seq_cst)|__ATOMIC_(?:ACQUIRE|RELEASE|ACQ_REL|SEQ_CST)")
MADE_TO_PASS = re.compile(r"MEMBARRIER_CMD_(?:REGISTER_)?GLOBAL")


@functools.cache
def content(file):
    """Without comments; None where there is no such file."""
    path = ROOT / file
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL) if path.is_file() else None


def functions(text):
    """(name, body) of each; the last has no name, and is what is outside of them."""
    outside, last = [], 0
    for found in re.finditer(r"^(?=[A-Za-z_])([^;{}#]*?)^\{$(.*?)^\}", text, re.DOTALL | re.MULTILINE):
        head = re.sub(r"__attribute__\(\(.*?\)\)", "", found[1])
        outside.append(text[last:found.start()])
        last = found.end()
        yield re.search(r"(\w+)\(", head)[1], found[2]
    yield None, "".join(outside) + text[last:]


def arguments(text, start):
    """What is between the parentheses of which the first is before @start, by commas."""
    out, depth, at = [], 0, start
    for i in range(start, len(text)):
        c = text[i]
        if c == "," and depth == 0 or c == ")" and depth == 0:
            out.append(text[at:i].strip())
            at = i + 1
        if c == ")" and depth == 0:
            return out
        depth += (c in "([") - (c in ")]")
    return out


def word_of(pointer):
    """The last name in it, but for what is in parentheses and brackets."""
    while (shorter := re.sub(r"\([^()]*\)|\[[^][]*\]", "", pointer)) != pointer:
        pointer = shorter
    return re.findall(r"\w+", pointer)[-1]


def orderings(body):
    """(word, whether it is of the writing side, of the reading side) of each."""
    for call in CALL.finditer(body):
        given = arguments(body, call.end())
        if call[2]:
            if call[2] == "ring_barrier" or MADE_TO_PASS.search(" ".join(given)):
                yield "barrier", True, True
            continue
        name = call[1]
        if "fence" in name:
            yield "fence", "acquire" not in given[0], "release" not in given[0]
            continue
        explicit = name.endswith("_explicit") or name.startswith("__atomic")
        if not explicit or STRONG.search(" ".join(given)):
            yield word_of(given[0]), "load" not in name, "store" not in name


def sums(text):
    """{(function, word): (writes, reads)}"""
    found = {}
    for function, body in functions(text):
        for word, writes, reads in orderings(body):
            before = found.get((function, word), (False, False))
            found[function, word] = (before[0] or writes, before[1] or reads)
    return found


@functools.cache
def asked_for(file):
    return sums(content(file))


def rows(table):
    """The cells of each, without the first two."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def models():
    """(shape, mutation) of all that are tried."""
    text = (ROOT / "tests/themes/model/orderings.list").read_text()
    return set(re.findall(r'"orderings\|\w+\|([A-Z_]+)\|-D([A-Z]+)', text))


@functools.cache
def mutations():
    """Those of the product, and those of the other models."""
    files = [file for room in ("ring", "broker", "libshare") for file in (ROOT / room).rglob("*.[ch]")]
    text = "".join(file.read_text() for file in files)
    return (set(re.findall(r"\bMUTATION\((\w+)\)", text))
            | {f"{model} {name}" for path in (ROOT / "tests/themes/model").glob("*.list")
               for model, name in re.findall(r'"(\w+)\|[\w ]+\|([A-Z_]+)\|', path.read_text())})


def check_noticed(shape, noticed):
    known = {name for name, of in models() if of == shape.strip("`")}
    if shape != "—" and not known:
        yield f"there is no shape {shape}"
    for name in re.findall(r"`([^`]+)`", noticed):
        if name not in known and name not in mutations():
            yield f"{name} is no mutation of {shape}, of another model or of the product"


def check(table, files):
    """What is wrong with it."""
    wrong, named = [], set()
    for row in rows(table):
        if len(row) != 7:
            wrong.append(f"{len(row)} columns are not 7: {row[0]}")
            continue
        shape, words, writers, readers, _, _, noticed = row
        words = set(re.findall(r"`(\w+)`", words))
        wrong += check_noticed(shape, noticed)
        for side, cell in enumerate((writers, readers)):
            if not NAME.search(cell):
                wrong.append(f"nobody is named: {row[1]}")
            for file, function in NAME.findall(cell):
                if content(file) is None:
                    wrong.append(f"there is no {file}")
                    continue
                here = {word for (of, word), sides in files(file).items()
                        if of == function and word in words and sides[side]}
                if not here:
                    wrong.append(f"{file}:{function} does not {('write', 'read')[side]} {row[1]} in any order")
                named |= {(file, function, word) for word in here}
    for room in ROOMS:
        for path in sorted(ROOT.glob(room)):
            file = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".c", ".h"):
                continue
            wrong += [f"{file}:{function or 'outside of functions'} has an order of `{word}` that is not named"
                      for function, word in files(file) if (file, function, word) not in named]
    return wrong, len(named)


def try_changes(table):
    """Which changes of the code, and of the table, are not noticed."""
    for file, old, new, message in (
            ("ring/consumer/inside.h", "&ack->word, word, memory_order_release", "&ack->word, word, memory_order_relaxed",
             "ring_write_word does not write `word`"),
            ("ring/consumer/receive.c", "atomic_thread_fence(memory_order_acquire);", "", "read_entry does not read `fence`"),
            ("ring/producer/room.c", "ring_barrier();", "", "drop does not write `barrier`"),
            ("ring/sleep.c", "atomic_load_explicit(s->word, memory_order_relaxed)", "atomic_load(s->word)",
             "ring_sleeper_awake has an order of `word` that is not named"),
            ("pages/timeline.c", "by_gpu, by_gpu, memory_order_relaxed", "by_gpu, by_gpu, memory_order_release",
             "timeline_set_by_gpu has an order of `by_gpu` that is not named")):
        text = content(file).replace(old, new)
        if not any(message in said
                   for said in check(table, lambda other: sums(text) if other == file else asked_for(other))[0]):
            yield message
    for old, new, message in (
            (":ring_write_word`", ":ring_write_words`", "ring_write_words does not write"),
            ("`ring/entry.h:ring_sequence_of`", "`ring/entry.h:ring_entry_load`", "ring_entry_load does not read"),
            ("`ring/producer/room.c:look_for_rejected`", "`ring/rooms.c:look_for_rejected`", "there is no ring/rooms.c"),
            ("`NO_RELEASE_FENCE`", "`NO_RELEASE_HEDGE`", "NO_RELEASE_HEDGE is no mutation")):
        if not any(message in said for said in check(table.replace(old, new), asked_for)[0]):
            yield message


table = (ROOT / "docs/orderings.md").read_text()
wrong, n = check(table, asked_for)
if not wrong:
    wrong = [f"not noticed: {message}" for message in try_changes(table)]
print(*(wrong or [f"{n} orderings"]), sep="\n")
sys.exit(bool(wrong))
