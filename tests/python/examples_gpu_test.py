# SPDX-License-Identifier: MIT
"""The programs of examples/python that hand memory of a GPU on, over the stand-in for the driver, which
cuda-bindings can use. CuPy and PyCUDA cannot: for these, see frameworks.py."""

import json
import os
import py_compile
import subprocess

import pytest
from examples_test import EXAMPLES, run, said


class Peer:
    """The C program of peer.c."""

    def __init__(self, address):
        self.process = subprocess.Popen([os.environ["SHARE_TEST_PEER"], address], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert json.loads(self.process.stdout.readline()) == {"ready": 1}

    def ask(self, **order):
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        assert self.process.wait() == 0
        self.process.stdout.close()


@pytest.fixture
def peer(broker):
    peer = Peer(broker.address)
    yield peer
    peer.close()


@pytest.mark.parametrize("kind", ["vmm", "mempool", "pinned"])
def test_cuda_bindings_and_c_hand_memory_on(broker, peer, kind):
    there = {"SHARE_SOCKET": broker.address}
    with broker.pool("examples", kind=kind, limit="64MiB") as pool:
        assert said("share_bindings.py", "produce", "a", "--first", 7, **there) == "share_bindings: ok produce a"
        assert said("share_bindings.py", "consume", "a", "--first", 7, **there) == "share_bindings: ok consume a"
        assert peer.ask(do="consume", kind="examples", name="a", base=7) == {"wrong": 0}
        assert broker.lookup("a").info()["kind"] == pool.kind == kind
        assert peer.ask(do="produce", kind="examples", name="b", base=9) == {"ok": 1}
        assert said("share_bindings.py", "consume", "b", "--first", 9, **there) == "share_bindings: ok consume b"
        wrong = run("share_bindings.py", "consume", "b", "--first", 8, **there)
        assert wrong.returncode == 1 and wrong.stderr == "share_bindings: b has other numbers\n"
        broker.unpublish("a")
        broker.unpublish("b")


def test_what_is_missing_is_said(broker):
    there = {"SHARE_SOCKET": broker.address}
    with broker.pool("examples", kind="host"):
        done = run("share_bindings.py", "produce", "a", **there)
    assert done.returncode == 1
    assert done.stderr == "share_bindings: no memory of a GPU: host, as asked\n"
    done = run("share_bindings.py", "produce", "a", SHARE_SOCKET="/nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("share_bindings: no broker could be reached")
    assert broker.inspect("buffers") == []


@pytest.mark.parametrize("program", sorted(os.listdir(EXAMPLES)))
def test_every_program_compiles(program, tmp_path):
    py_compile.compile(os.path.join(EXAMPLES, program), cfile=str(tmp_path / "out"), doraise=True)


def test_the_programs_understand_the_same_words():
    """What cannot run here is at least called as the others are."""
    words = {}
    for name in ("bindings", "cupy", "pycuda"):
        with open(os.path.join(EXAMPLES, f"share_{name}.py")) as f:
            words[name] = [line for line in f if "parser.add_argument" in line or "COUNT =" in line
                           or "client.pool(" in line]
    assert words["bindings"] == words["cupy"] == words["pycuda"] and len(words["cupy"]) == 5
