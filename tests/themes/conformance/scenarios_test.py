#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each scenario of scenarios.txt is in the suites of C, C++ and Python, and theirs of C++ and Python have no
others: what one language is tested for, all are.

usage: scenarios_test.py ROOT"""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
here = root / "tests/themes/conformance"
names = [n for n in (here / "scenarios.txt").read_text().splitlines() if n and not n.startswith("#")]
suites = {
    "C": ("\n".join(f.read_text() for f in (root / "tests/themes").glob("*/*.c")), r"^ConformanceTest\((\w+)\)"),
    "C++": ((here / "conformance.cpp").read_text(), r"^SCENARIO\((\w+)\)"),
    "Python": ((root / "tests/python/conformance_test.py").read_text(), r"^def test_(\w+)\("),
}
failed = len(names) != len(set(names)) or len(names) < 10
for language, (text, pattern) in suites.items():
    found = re.findall(pattern, text, re.M)
    for name in names:
        if found.count(name) != 1:
            print(f"{language} has {name} {found.count(name)} times")
            failed = True
    if language != "C":  # of which the suite has more, about what only C has
        for name in set(found) - set(names):
            print(f"{name} of {language} is not in scenarios.txt")
            failed = True
sys.exit(failed)
