# SPDX-License-Identifier: MIT
"""frameworks.py itself, over the stand-in for the driver: what it makes of programs that work, fail,
hang, or are not there. What it says of frameworks is the business of a machine with a GPU."""

import json
import os
import subprocess
import sys

import frameworks

PROGRAM = os.path.abspath(frameworks.__file__)


def run(tmp_path, *arguments):
    """Exit code, what it printed, and its lines of JSON."""
    done = subprocess.run([sys.executable, PROGRAM, "--json", tmp_path / "rows", "--kinds", "vmm", *arguments],
                          capture_output=True, text=True, timeout=250)
    rows = [json.loads(line) for line in open(tmp_path / "rows")]
    return done.returncode, done.stdout, {f"{row['part']} {row['name']}": row for row in rows}


def test_each_program_hands_on_to_each(tmp_path):
    code, said, rows = run(tmp_path, "--parts", "programs", "--only", "bindings",
                           "--peer", os.environ["SHARE_TEST_PEER"])
    assert code == 0
    for pair in ("bindings to bindings", "bindings to c", "c to bindings", "c to c"):
        row = rows[f"programs {pair}"]
        assert (row["kind"], row["result"]) == ("vmm", "ok")
    assert "\nbindings                     ok             ok\nc " in said
    assert said.splitlines()[-1].startswith("4 ok, 0 failed, ")


def test_a_pair_is_counted_and_what_fails_is_named(tmp_path):
    # its kernels do not run here
    code, said, rows = run(tmp_path, "--parts", "pairs", "--only", "bindings",
                           "--peer", os.environ["SHARE_TEST_PEER"])
    assert code == 1
    assert rows["pairs c to c"] == {"part": "pairs", "kind": "vmm", "name": "c to c", "result": "ok", "wrong": 0}
    assert rows["pairs bindings"]["result"] == "FAILED" and rows["pairs bindings"]["detail"]
    assert said.splitlines()[-1].startswith("1 ok, 1 failed, ")


def test_without_anything_to_run_it_is_skipped(tmp_path):
    code, said, _ = run(tmp_path, "--parts", "programs", "--only", "none")
    assert code == 77 and said.splitlines()[-1].startswith("SKIPPED: ")


HANGS = [sys.executable, "-c", "import signal; print('so far', flush=True); signal.pause()"]


def test_what_hangs_is_ended():
    code, said = frameworks.run(HANGS, 2)
    assert code == 124 and said == "so far\nit did not end within 2 s"


def test_a_worker_that_does_not_answer_or_is_gone_is_named():
    worker = frameworks.Worker("w", [sys.executable, "-c", "import signal; signal.pause()"])
    assert worker.answer(0.1) == {"error": "w did not answer within 0.1 s"}
    assert worker.answer(10) == {"error": "w ended with -9"}
    assert not worker.end()
    worker = frameworks.Worker("w", [sys.executable, "-c", "print('{\"a\": 1}\\n{\"b\"', end=''); print(': 2}')"])
    assert worker.answer(60) == {"a": 1} and worker.answer(60) == {"b": 2}
    assert worker.answer(60) == {"error": "w ended with 0"} and worker.ask(do="x")["error"] == "w ended with 0"
    assert worker.end()
