# SPDX-License-Identifier: MIT
"""Weights: one copy under one name, replaced as a whole."""

import concurrent.futures
import json
import multiprocessing
import multiprocessing.resource_tracker
import struct

import numpy as np
import pytest

import libshare
import libshare.weights
from libshare.weights import WeightsError, attach_weights, publish_weights, read_safetensors

# It stays, with its descriptors, so it is there before these are counted.
multiprocessing.resource_tracker.ensure_running()


def same(weights, expected):
    assert list(weights) == list(expected)
    for name, value in expected.items():
        assert np.array_equal(np.asarray(weights[name]), value), name
        assert weights[name].shape == value.shape


def model(seed):
    rng = np.random.default_rng(seed)
    return {
        "a.weight": rng.standard_normal((7, 5)).astype(np.float32),
        "a.bias": rng.integers(0, 255, 3, dtype=np.uint8),
        "scalar": np.array(seed, dtype=np.int64),
        "empty": np.empty((0, 4), dtype=np.float16),
        "b": rng.standard_normal((2, 3, 4)),
    }


def write_safetensors(path, tensors):
    names = {"float32": "F32", "uint8": "U8", "int64": "I64", "float16": "F16", "float64": "F64"}
    header, content = {"__metadata__": {"format": "np"}}, b""
    for name, value in tensors.items():
        header[name] = {"dtype": names[value.dtype.name], "shape": list(value.shape),
                        "data_offsets": [len(content), len(content) + value.nbytes]}
        content += value.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)


def test_arrays_come_back_as_they_were(client, pool):
    publish_weights(pool, "model", model(1), metadata={"step": 10})
    weights = attach_weights(client, "model")
    same(weights, model(1))
    assert weights.metadata == {"step": 10}
    assert all(array.readonly for array in weights.values())


def test_a_safetensors_file_is_read_into_the_pool(client, pool, tmp_path):
    write_safetensors(tmp_path / "m.safetensors", model(2))
    publish_weights(pool, "model", tmp_path / "m.safetensors")
    same(attach_weights(client, "model"), model(2))


def test_several_files_are_one_model(client, pool, tmp_path):
    whole = model(3)
    first = dict(list(whole.items())[:2])
    rest = dict(list(whole.items())[2:])
    write_safetensors(tmp_path / "1", first)
    write_safetensors(tmp_path / "2", rest)
    publish_weights(pool, "model", [tmp_path / "1", tmp_path / "2"])
    same(attach_weights(client, "model"), whole)
    with pytest.raises(WeightsError, match="in several"):
        publish_weights(pool, "model", [tmp_path / "1", tmp_path / "1"])


def test_whoever_has_a_version_keeps_it(client, pool):
    publish_weights(pool, "model", model(1))
    old = attach_weights(client, "model")
    assert old.is_current()
    publish_weights(pool, "model", model(2))
    assert not old.is_current()
    same(old, model(1))
    new = attach_weights(client, "model")
    assert new.version > old.version
    same(new, model(2))


def test_one_tensor_under_two_names_is_there_once(client, pool):
    from libshare.weights import sources_of

    sources = sources_of({"head": np.zeros(1000, np.uint8), "tail": np.zeros(1000, np.uint8)})
    for source in sources.values():
        source.key = "the same"
    publish_weights(pool, "model", sources)
    weights = attach_weights(client, "model")
    assert weights["head"].ptr == weights["tail"].ptr


def test_weights_in_several_buffers_are_one_version(client, pool, monkeypatch):
    monkeypatch.setitem(libshare.weights._PART_MAX, "host", (1 << 20) + 512)
    expected = {f"{i}": np.full(400, i, np.uint8) for i in range(5)}
    publish_weights(pool, "model", expected)
    parts = [n.name for n in client.names("model.parts/")]
    assert len(parts) == 4
    old = attach_weights(client, "model")
    same(old, expected)
    publish_weights(pool, "model", {"0": np.zeros(1, np.uint8)})
    assert client.names("model.parts/") == []
    same(old, expected)
    same(attach_weights(client, "model"), {"0": np.zeros(1, np.uint8)})


def test_publishers_at_the_same_time_leave_the_weights_of_one(client, pool, monkeypatch):
    """Another publisher comes when the parts of one lie there, and nothing leads to them yet."""
    monkeypatch.setitem(libshare.weights._PART_MAX, "host", (1 << 20) + 512)
    publish, others = libshare.Array.publish, []

    def weights(i, parts=5):
        return {f"{n}": np.full(400, i, np.uint8) for n in range(parts)}

    def interrupted(array, name, **options):
        version = publish(array, name, **options)
        if name.endswith("/3") and others:
            publish_weights(pool, "model", others.pop())
        return version

    monkeypatch.setattr(libshare.Array, "publish", interrupted)
    for before in ([], [weights(0)]):
        for other in ([weights(1)], [weights(1, parts=1)], [weights(1), weights(2)]):
            for w in before:
                publish_weights(pool, "model", w)
            others = list(other)
            version = publish_weights(pool, "model", weights(3))
            found = attach_weights(client, "model")
            assert found.version == version
            same(found, weights(3))
            assert sorted(n.name[-1] for n in client.names("model.parts/")) == ["0", "1", "2", "3"]
            client.unpublish("model")
            publish_weights(pool, "model", weights(0, parts=1))
            assert [n.name for n in client.names()] == ["model"]
            client.unpublish("model")


def test_who_is_interrupted_as_the_broker_answers_has_published_all(client, pool, monkeypatch):
    monkeypatch.setitem(libshare.weights._PART_MAX, "host", (1 << 20) + 512)
    publish = libshare.Array.publish
    weights = [{f"{n}": np.full(400, i, np.uint8) for n in range(5)} for i in range(3)]

    def interrupted(array, name, **options):
        publish(array, name, **options)
        if name == where or name.endswith(where):
            raise KeyboardInterrupt

    publish_weights(pool, "model", weights[0])
    with monkeypatch.context() as patch:
        patch.setattr(libshare.Array, "publish", interrupted)
        for where, i in (("/~", 0), ("/0", 0), ("/3", 0), ("model", 1)):
            with pytest.raises(KeyboardInterrupt):
                publish_weights(pool, "model", weights[1])
            same(attach_weights(client, "model"), weights[i])
            prefixes = {n.name.rpartition("/")[0] for n in client.names("model.parts/")}
            assert len(prefixes) == 1 + i and not any(n.name.endswith("~") for n in client.names("model.parts/"))
    # what nobody needs any more goes with the next one
    publish_weights(pool, "model", weights[2])
    same(attach_weights(client, "model"), weights[2])
    assert len(client.names("model.parts/")) == 4


def test_many_publishers_and_a_reader_meet_all_of_one_version(client, pool, monkeypatch):
    monkeypatch.setitem(libshare.weights._PART_MAX, "host", (1 << 20) + 4096)

    def publisher(first):
        with libshare.connect(client.address) as own, own.pool("test", create=False) as to:
            for version in range(first, first + 40, 2):
                publish_weights(to, "model", {f"{i}": np.full(4000, version, np.uint8) for i in range(3)}, persistent=True)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        publishers = [threads.submit(publisher, first) for first in (1, 2)]
        while not all(p.done() for p in publishers):
            weights = attach_weights(client, "model", timeout=10)
            assert len(weights) == 3 and len({int(np.asarray(array)[0]) for array in weights.values()}) == 1
            del weights
        for p in publishers:
            p.result()
    names = [n.name for n in client.names("model")]
    assert [name[-2:] for name in names] == ["el", "/0", "/1"]
    for name in names:
        client.unpublish(name)


@pytest.mark.parametrize("content", [b"", b"\0" * 7, struct.pack("<Q", 1 << 60) + b"{}",
                                     struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 1) + b"{"])
def test_a_file_that_is_none_is_refused(tmp_path, content):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(WeightsError):
        read_safetensors(path)


@pytest.mark.parametrize("entry", [
    {"dtype": "F32", "shape": [4], "data_offsets": [0, 1000]},
    {"dtype": "F32", "shape": [4], "data_offsets": [8, 4]},
    {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]},
    {"dtype": "F4", "shape": [4], "data_offsets": [0, 16]},
    {"dtype": "F32", "data_offsets": [0, 16]},
    {"dtype": "F32", "shape": "x", "data_offsets": [0, 16]},
    {"dtype": "F32", "shape": [4], "data_offsets": [0, 16, 16]},
    {"dtype": "F32", "shape": [4], "data_offsets": [0.0, 16.0]},
    {"dtype": "F32", "shape": [4.0], "data_offsets": [0, 16]},
])
def test_a_header_that_lies_is_refused(tmp_path, entry):
    text = json.dumps({"t": entry}).encode()
    path = tmp_path / "broken.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 16)
    with pytest.raises(WeightsError):
        read_safetensors(path)


def test_a_name_that_leads_elsewhere_is_refused(client, pool):
    pool.zeros((4, 4)).publish("tensor")
    pool.zeros(100, "uint8").publish("bytes")
    for name in ("tensor", "bytes"):
        with pytest.raises(WeightsError):
            attach_weights(client, name)
    with pytest.raises(libshare.NotFoundError):
        attach_weights(client, "nothing")


@pytest.mark.parametrize("lie", [
    {"tensors": [["t", "float32", [1 << 40], 0, 0]]},
    {"tensors": [["t", "float32", [4], 3, 0]]},
    {"tensors": [["t", "nothing", [4], 0, 0]]},
    {"tensors": [["t", "float32", [4], 0, 1 << 50]]},
    {"tensors": [["t", "float32", [-4], 0, 0]]},
    {"tensors": [["t", "float32", [1 << 200], 0, 0]]},
    {"tensors": [["t", "float32", [float("inf")], 0, 0]]},
    {"tensors": [[["t"], "float32", [4], 0, 0]]},
    {"tensors": [["t", None, [4], 0, 0]]},
    {"tensors": None},
    {"parts": None}, {"parts": "2"}, {"parts": 1.5}, {"parts": 1e300},
    {"parts": 2, "prefix": "\0"}, {"parts": 2, "prefix": "x" * 10000},
    "tensors", "parts",
    "[" * 100000,
])
def test_a_manifest_that_lies_is_refused(client, pool, lie):
    """Whoever may write in a pool may publish what they like: no reading beyond the buffer."""
    manifest = {"tensors": [], "parts": 1, "prefix": "", "metadata": None}
    if isinstance(lie, dict):
        text = json.dumps({**manifest, **lie}).encode()
    elif lie in manifest:
        text = json.dumps({key: value for key, value in manifest.items() if key != lie}).encode()
    else:
        text = lie.encode()
    tail = text + struct.pack("<Q8s", len(text), b"ShWghts1")
    array = pool.alloc(64 + len(tail))
    array.copy_from(b"\0" * 64 + tail)
    array.publish("lie")
    with pytest.raises(WeightsError):
        attach_weights(client, "lie")


def test_a_pool_that_is_too_small_says_so(client):
    with client.pool("small", kind="host", limit="4MiB") as small:
        with pytest.raises(MemoryError):
            publish_weights(small, "model", {"w": np.zeros(8 << 20, np.uint8)})
        assert client.names() == []


def read_all(address, versions, go, answers):
    with libshare.connect(address) as client:
        answers.put("ready")
        go.wait()
        seen = set()
        while True:
            weights = attach_weights(client, "model", timeout=None)
            values = {int(np.asarray(array)[0]) for array in weights.values()}
            assert len(values) == 1, f"a mixture of versions: {values}"
            seen |= values
            if versions - 1 in values:
                break
            del weights
        answers.put(len(seen))


def test_what_is_more_than_its_bytes_is_refused(client, pool):
    for wrong, words in ((np.ma.masked_array(np.arange(3), [0, 1, 0]), "mask"), (np.arange(3, dtype=">i4"), "byte order"),
                         (np.array(["2026-01-01"], "M8[D]"), "numpy.asarray")):
        with pytest.raises(ValueError, match=words):
            publish_weights(pool, "model", {"w": wrong})
    assert client.names() == []


def test_running_readers_never_see_a_mixture(client, pool, monkeypatch):
    monkeypatch.setitem(libshare.weights._PART_MAX, "host", (1 << 20) + 4096)
    context = multiprocessing.get_context("spawn")
    go, answers, versions = context.Event(), context.Queue(), 40
    readers = [context.Process(target=read_all, args=(client.address, versions, go, answers))
               for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in readers:
        assert answers.get() == "ready"
    go.set()
    for version in range(versions):
        publish_weights(pool, "model", {f"{i}": np.full(4000, version, np.uint8) for i in range(3)})
    assert all(answers.get() >= 1 for _ in readers)
    for reader in readers:
        reader.join()
        assert reader.exitcode == 0
