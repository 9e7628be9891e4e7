# SPDX-License-Identifier: MIT
"""The programs of examples/python as their users run them, and what they say."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from conftest import until

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "python")


def run(program, *arguments, **environment):
    return subprocess.run(
        [sys.executable, os.path.join(EXAMPLES, program), *map(str, arguments)], text=True, cwd="/",
        env={**os.environ, **environment}, capture_output=True, timeout=240)


def said(program, *arguments, **environment):
    """The last line of what it says, when all goes well."""
    done = run(program, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()[-1]


def test_frames_are_found_where_they_were_drawn():
    assert said("frames.py", 40) == f"frames: ok frames=40 bytes={40 * 1080 * 1920 * 3}"


def test_frames_of_two_runs_on_one_broker(broker):
    for _ in range(2):
        assert said("frames.py", 3, SHARE_SOCKET=broker.address).startswith("frames: ok frames=3 ")
    for what in ("buffers", "channels"):
        until(lambda: broker.inspect(what) == [])
    assert "frames" not in [row["pool"] for row in broker.inspect("pools")]


def test_a_subscriber_starts_again_while_its_publisher_goes_on():
    assert said("restart.py", 2) == "restart: ok times=2"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="there is no torch here")
def test_workers_change_versions_and_go_on_when_one_is_killed():
    assert re.fullmatch(
        r"worker_pool: ok kind=host workers=2 killed=1 versions=2 copies_of_each=1 requests=\d+ again=\d+",
        said("worker_pool.py", "--workers", 2, "--kind", "host"))


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="there are no transformers here")
def test_workers_of_a_model_of_transformers_change_versions():
    assert re.fullmatch(
        r"transformers_pool: ok workers=2 mib=\d+ versions=2 requests=\d+", said("transformers_pool.py", "--workers", 2, "--hidden", 128))
