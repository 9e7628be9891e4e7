# SPDX-License-Identifier: MIT
"""python -m libshare.bench: every figure is there or named with the reason; no time is asserted."""

import importlib.util
import json
import subprocess
import sys

import pytest

import libshare
from libshare import _core
from libshare.bench import __main__ as command
from libshare.bench import figures, plot

BENCHMARKS = ("calls", "arrays", "torch-cuda", "weights", "decoder", "tables", "loader")


def bench(*arguments):
    return subprocess.run([sys.executable, "-m", "libshare.bench", *arguments], text=True, cwd="/",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def found():
    done = bench("--quick", "--size", "1MiB", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_figure_is_measured_or_skipped_with_a_reason(found):
    expected = [name for module in BENCHMARKS for name in command._module(module).ROWS]
    assert sorted(f["name"] for f in found) == sorted(expected)
    for f in found:
        assert f["what"]
        assert f.get("skipped") or f["value"] >= 0, f


def test_what_needs_nothing_but_numpy_is_measured(found):
    measured = {f["name"] for f in found if "value" in f}
    assert measured >= set(command._module("calls").ROWS) | {"weights.host.attach", "weights.host.memory"}
    assert measured >= {"arrays.libshare", "arrays.queue", "arrays.pipe", "arrays.shared-memory"}


def test_a_package_that_is_not_there_is_named(found):
    by_name = {f["name"]: f for f in found}
    for row, module, package in (("arrays.zmq", "zmq", "pyzmq"), ("arrays.ray", "ray", "ray"),
                                 ("decoder.cpu", "torch", "torch"), ("torch-cuda.1MiB", "torch", "torch"), ("loader.samples", "torch", "torch"),
                                 ("tables.publish", "pyarrow", "pyarrow")):
        if importlib.util.find_spec(module) is None:
            assert by_name[row]["skipped"] == f"the package {package} is not installed"


def test_a_benchmark_that_takes_too_long_is_ended_and_said_to_be(monkeypatch):
    monkeypatch.setitem(command._LIMITS, "calls", 0)
    rows = list(command._run("calls", True, 1))
    assert {f["name"] for f in rows} == set(command._module("calls").ROWS)
    assert {f["failed"] for f in rows} == {"not done after 0 s"}


def test_an_earlier_run_becomes_a_table_and_a_plot(found, tmp_path):
    earlier, drawing = tmp_path / "figures", tmp_path / "plot.svg"
    earlier.write_text("".join(json.dumps(f) + "\n" for f in found))
    done = bench("--from", str(earlier), "--markdown", "--plot", str(drawing))
    assert done.returncode == 0, done.stderr
    assert all(f"| `{f['name']}` |" in done.stdout for f in found)
    assert "multiprocessing.Queue" in drawing.read_text()


def test_there_is_no_plot_without_a_round_trip(tmp_path):
    earlier = tmp_path / "figures"
    earlier.write_text('{"name": "calls.send", "what": "", "skipped": "no reason"}\n')
    done = bench("--from", str(earlier), "--plot", str(tmp_path / "plot.svg"))
    assert done.returncode == 1
    assert "no round trip to plot" in done.stderr
    with pytest.raises(ValueError):
        plot.svg([])


def test_a_target_is_met_or_missed():
    base = {"name": "x", "what": "it", "unit": "us", "against": 40.0, "compared": "20 x", "target": ">= 20 x"}
    assert ">= 20 x: met" in figures.row(base | {"value": 2.0, "met": True})
    assert ">= 20 x: MISSED" in figures.row(base | {"value": 4.0, "met": False})
    assert "skipped" in figures.row({"name": "x", "what": "it", "skipped": "no GPU"})


def test_the_loops_in_c_do_what_the_calls_do(client):
    with client.pool("measured", kind="host", limit="1MiB") as pool:
        with pool.consumer("c", depth=8) as rx, pool.producer("c") as tx, pool.alloc(64) as a:
            assert _core._measure(tx, 4, a) > 0
            assert all(part > 0 for part in _core._measure(rx, 3))
            rx.recv(0).ack()
            tx.send(a)
            with pytest.raises(libshare.NotReadyError):  # there are not so many, and it keeps none
                _core._measure(rx, 2)
            assert rx.stats()["in_flight"] == 0
            assert _core._measure(pool, 2, 64) > 0
            with pytest.raises(libshare.NotFoundError):
                _core._measure(client, 1, "nothing")
            with pytest.raises(TypeError):
                _core._measure(a, 1)
            with pytest.raises(TypeError):
                _core._measure(tx, 1, None)
    with pytest.raises(libshare.ClosedError):
        _core._measure(pool, 1, 64)
