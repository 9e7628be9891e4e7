# SPDX-License-Identifier: MIT
"""What README.md and docs/python.md show of Python does what it says, word for word."""

import os
import re
import subprocess
import sys

import pytest

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


def blocks(document):
    with open(os.path.join(ROOT, document)) as f:
        return re.findall(r"^```python\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_what_is_shown_runs(document):
    shown = blocks(document)
    assert shown
    # the pieces of a document go on where the one before ended
    done = subprocess.run([sys.executable, "-c", "\n".join(shown)], text=True, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if document == "README.md":
        assert done.stdout == "(1080, 1920, 3) {'n': 7}\n"
