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
    # triton_test and pinned_test run the last two
    others = ("libshare.torch", "libshare.arrow", "libshare.triton", 'kind="pinned"')
    shown = [block for block in blocks(document) if not any(other in block for other in others)]
    assert shown
    # the pieces of a document go on where the one before ended
    done = subprocess.run([sys.executable, "-c", "\n".join(shown)], text=True, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if document == "README.md":
        assert done.stdout == "(1080, 1920, 3) {'n': 7}\n"


def test_what_is_shown_of_tables_runs():
    pytest.importorskip("pyarrow")
    shown = [block for block in blocks("docs/python.md") if "libshare.arrow" in block]
    assert shown
    program = """if True:
        import libshare
        client = libshare.connect("embedded")
        pool = client.pool("frames", kind="host", limit="64MiB")
    """
    done = subprocess.run([sys.executable, "-c", "\n".join([program, *shown])], text=True, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


TORCH = """
client = libshare.connect("embedded")
pool = client.pool("frames", kind="host", limit="64MiB")
model = torch.nn.Linear(4, 2)
with torch.device("meta"):
    worker_model = torch.nn.Linear(4, 2)
"""
TORCH_GPU = """
pool = client.pool("frames-gpu", kind="vmm", limit="64MiB")
model, x = model.cuda(), torch.ones(3, 4, device="cuda")
"""


def test_what_is_shown_of_torch_runs():
    torch = pytest.importorskip("torch")
    shown = [block for block in blocks("docs/python.md") if "libshare.torch" in block]
    host = [block for block in shown if "torch.cuda" not in block]
    assert host and len(host) < len(shown)
    program = ["import libshare, libshare.torch, torch", TORCH, *host, "assert model.weight.equal(worker_model.weight)"]
    if torch.cuda.is_available():
        program += [TORCH_GPU] + [block for block in shown if "torch.cuda" in block]
    done = subprocess.run([sys.executable, "-c", "\n".join(program)], text=True, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
