# SPDX-License-Identifier: MIT
"""The guide and what the headers say, where only the package is installed.

    python -m libshare.docs                 # the guide
    python -m libshare.docs streams         # its sections whose titles have that word
    python -m libshare.docs share_alloc     # what a header says of a function, a type or a constant of C
    python -m libshare.docs channel.h       # a whole header
"""

from __future__ import annotations

import os
import pydoc
import re
import sys
from collections.abc import Iterator

_HERE = os.path.dirname(os.path.realpath(__file__))
_INSTALLED = os.path.join(_HERE, "text")
_TREE = os.path.join(_HERE, "..", "..")  # a checkout, whose package is used in place


def _read(name: str) -> str:
    places = [os.path.join(_INSTALLED, name),
              os.path.join(_TREE, "include" if name.startswith("share/") else "docs", name)]
    with open(next(filter(os.path.exists, places), places[0]), encoding="utf-8") as file:
        return file.read()


def guide() -> str:
    """docs/python.md."""
    return _read("python.md")


def headers() -> dict[str, str]:
    """The headers of C, by name ("share.h"), with the comments that the manual pages are made from."""
    folder = os.path.join(_INSTALLED, "share")
    if not os.path.isdir(folder):
        folder = os.path.join(_TREE, "include", "share")
    return {name: _read(f"share/{name}") for name in sorted(os.listdir(folder)) if name.endswith((".h", ".hpp"))}


def _sections() -> Iterator[tuple[str, str]]:
    for part in re.split(r"^(?=##+ )", guide(), flags=re.MULTILINE)[1:]:
        yield part.partition("\n")[0].lstrip("# "), part


def find(word: str) -> str:
    """What there is about a word. KeyError: nothing."""
    texts = headers()
    if word in texts:
        return texts[word]
    found = []
    for header, text in texts.items():
        for block in re.split(r"\n{2,}", text):
            code = re.sub(r"/\*.*?\*/", "", block, flags=re.DOTALL)
            if header != "share.hpp" and re.search(rf"\b{re.escape(word)}\b", code):
                found.append(f"<share/{header}>\n\n{block}\n")
    # a function's own block before those that call it
    found.sort(key=lambda block: re.search(rf"^[^\s*#].*\b{re.escape(word)}\(|^\t?{re.escape(word)}\b", block, re.MULTILINE) is None)
    found += [part for title, part in _sections() if word.lower() in title.lower()]
    if not found:
        raise KeyError(word)
    return "\n".join(found)


def main(arguments: list[str]) -> int | str:
    if len(arguments) > 1 or arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    try:
        pydoc.pager(find(arguments[0]) if arguments else guide())
    except KeyError:
        return f"nothing is said of {arguments[0]!r}: python -m libshare.docs has the guide, and help(libshare) the classes"
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
