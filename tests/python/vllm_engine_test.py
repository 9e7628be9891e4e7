# SPDX-License-Identifier: MIT
"""Engines of vLLM on one copy of the weights, with a real vLLM on a CPU, where $SHARE_VLLM_PYTHON names an interpreter that
has it: docs/testing.md says how. vllm_test.py tests the loader without vLLM.
"""

import contextlib
import importlib.metadata
import json
import os
import pathlib
import subprocess

import pytest

import libshare
from conftest import patience, until

PYTHON = os.environ.get("SHARE_VLLM_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="SHARE_VLLM_PYTHON names no interpreter with vLLM")
ENGINE = str(pathlib.Path(__file__).parent / "vllm_engine.py")


@pytest.fixture
def package(tmp_path):
    """This package and its entry points, as they are installed, and nothing else that is there."""
    here = pathlib.Path(libshare.__file__).parent
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "libshare").symlink_to(here)
    try:
        installed = importlib.metadata.distribution("libshare")
        points = installed.read_text("entry_points.txt")
    except importlib.metadata.PackageNotFoundError:  # used in place
        points = "[vllm.general_plugins]\nlibshare = libshare.vllm:register\n"
    info = tmp_path / "package" / "libshare-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: libshare\nVersion: 0\n")
    (info / "entry_points.txt").write_text(points)
    return tmp_path / "package"


class Engine:
    def __init__(self, stack, package, address, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
        environment |= {
            "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "SHARE_SOCKET": address, "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}
        self._process = stack.enter_context(subprocess.Popen(
            [PYTHON, ENGINE, *map(str, arguments)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        stack.callback(self._process.kill)

    def answer(self):
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line.removeprefix("ANSWER "))
        raise AssertionError(f"the engine ended with {self._process.wait()}")

    def ask(self, command, argument=None):
        print(json.dumps([command, argument]), file=self._process.stdin, flush=True)
        return self.answer()

    def end(self):
        self._process.stdin.close()
        assert self._process.wait() == 0


def test_engines_have_one_copy_and_say_the_same_and_change_versions(broker, package, tmp_path):
    patience(1600)  # an engine takes half a minute of a processor to start
    models = [tmp_path / "first" / "model", tmp_path / "second" / "model"]
    for seed, folder in enumerate(models):
        subprocess.run([PYTHON, ENGINE, "make", folder, str(seed)], check=True)
    with contextlib.ExitStack() as stack:
        def engine(*arguments):
            return Engine(stack, package, broker.address, *arguments)

        plain, publisher = engine(models[0], "auto"), engine(models[0], "libshare", "publish")
        assert plain.answer() == publisher.answer() == "ready"
        tokens = plain.ask("tokens")
        assert len(tokens) == 2 and publisher.ask("tokens") == tokens
        publisher.end()
        plain.end()

        one, two = (engine(models[0], "libshare", "attach") for _ in range(2))
        assert one.answer() == two.answer() == "ready"
        assert one.ask("tokens") == two.ask("tokens") == tokens
        size = (models[0] / "model.safetensors").stat().st_size
        for e in (one, two):
            there = e.ask("memory")
            assert there["elsewhere"] == 0 and there["pool"] > 0.9 * size and there["buffers"] < size, there
            assert there["maps"] == ["r--s"]

        # what stores in place is refused, and the engine is as it was
        for how in ("checkpoint", "kernel", "path", "loader"):
            assert "publish" in one.ask("store", how), how
            assert one.ask("tokens") == tokens, how
        one.ask("reload")  # there is no other version
        assert one.ask("tokens") == tokens

        # the configuration is the same, and so is the name: that is the next version
        publisher = engine(models[1], "libshare", "publish")
        assert publisher.answer() == "ready"
        others = publisher.ask("tokens")
        assert others != tokens
        publisher.end()
        assert one.ask("tokens") == two.ask("tokens") == tokens
        one.ask("reload")
        assert one.ask("tokens") == others and two.ask("tokens") == tokens
        there = one.ask("memory")
        assert there["elsewhere"] == 0 and there["maps"] == ["r--s"]
        assert "publish" in one.ask("store", "checkpoint") and one.ask("tokens") == others
        one.end()
        two.end()
    for n in broker.names():
        broker.unpublish(n.name)
    until(lambda: not any(row["pool"] == "vllm" for row in broker.inspect("pools")))  # it ends with the last of them
