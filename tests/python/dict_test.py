# SPDX-License-Identifier: MIT
"""Pool.publish(): arrays of others, and dicts of arrays, which are replaced together."""

import numpy as np
import pytest

import libshare
import libshare.weights


def test_a_dict_of_arrays_is_found_as_one(client, pool):
    image = pool.array(np.arange(12, dtype=np.uint8).reshape(3, 4))
    there = {"image": image, "boxes": np.ones((2, 4), np.float32), "part": np.arange(20)[::3], "none": np.zeros((0, 4)),
             "one": np.array(7, np.int16), "view": image[:, 1]}
    version = pool.publish("x", there)
    found = client.lookup_dict("x")
    assert type(found) is dict and list(found) == list(there)
    for key, value in there.items():
        assert isinstance(found[key], libshare.Array) and found[key].readonly
        assert found[key].dtype == np.asarray(value).dtype.name and found[key].shape == np.asarray(value).shape
        assert np.array_equal(np.asarray(found[key]), np.asarray(value)) and found[key].ptr % 64 == 0
    assert {a.id for a in found.values()} == {found["image"].id} != {image.id}
    image[...] = 0  # what was published is a copy
    assert found["image"][0][1].tobytes() == b"\1"
    assert pool.publish("x", {"image": np.zeros(3)}) > version
    assert list(client.lookup_dict("x", timeout=0)) == ["image"]
    assert np.asarray(found["boxes"]).sum() == 8  # a version stays as long as somebody has it
    assert pool.publish("x", {}) and client.lookup_dict("x") == {}


def test_one_array_is_found_by_lookup(client, pool):
    for source in (np.arange(6).reshape(2, 3), np.arange(6)[::2], b"bytes", pool.array(np.eye(3)), np.zeros((0, 2))):
        version = pool.publish("x", source)
        found = client.lookup("x", timeout=0)
        assert found.version == version and np.array_equal(np.asarray(found), np.asarray(memoryview(source)))
    with pytest.raises(ValueError, match="lookup"):
        client.lookup_dict("x")
    with pytest.raises(FileNotFoundError):
        client.lookup_dict("y", timeout=0)
    pool.publish("d", {"a": np.arange(3)})
    with pytest.raises(TypeError, match="lookup_dict"):
        client.lookup("d", timeout=0)["a"]


def test_a_name_of_its_own_stays(broker):
    with libshare.connect(broker.address) as c, c.pool("p", kind="host", persistent=True) as p:
        p.publish("kept", {"a": np.arange(3)}, persistent=True)
        p.publish("gone", {"a": np.arange(3)})
    with libshare.connect(broker.address) as c:
        assert np.asarray(c.lookup_dict("kept", timeout=0)["a"]).tolist() == [0, 1, 2]
        with pytest.raises(FileNotFoundError):
            c.lookup_dict("gone", timeout=0)
        c.unpublish("kept")
        c.destroy_pool("p")


def test_who_publishes_something_else_is_told_what_to_do(client, pool):
    class Frame:  # as a pandas user has it
        iloc = None

    table = Frame()
    for wrong, words in ((table, "libshare.arrow.publish"), ({"t": table}, "'t' is a Frame: libshare.arrow.publish"),
                         ([1, 2], "this is a list.*numpy.asarray"), ({"n": 3}, "'n' is a int.*numpy.asarray"),
                         ({"s": "text"}, "'s' is a str"), ({1: np.zeros(1)}, "keys"), ({"d": {"e": np.zeros(1)}}, "'d' is a dict"),
                         (None, "NoneType")):
        with pytest.raises(TypeError, match=words):
            pool.publish("x", wrong)
    for wrong, words in ((np.zeros(2, [("a", "i4")]), "view"), (np.zeros(2, "M8[s]"), "view"),
                         (np.ma.masked_array([1, 2], [0, 1]), "mask")):
        for source in (wrong, {"key": wrong}):
            with pytest.raises(ValueError, match=words):
                pool.publish("x", source)
    assert client.names() == []
    pyarrow = pytest.importorskip("pyarrow")
    with pytest.raises(TypeError, match="libshare.arrow.publish"):
        pool.publish("x", pyarrow.table({"a": [1]}))


@pytest.mark.parametrize("length", [246, 247, 248, 255])
def test_a_name_may_be_as_long_as_names_are(client, pool, length, monkeypatch):
    name = "ä" * (length // 2) + "x" * (length % 2)
    for i in range(2):
        pool.publish(name, {"a": np.full(3, i)})
        assert np.asarray(client.lookup_dict(name, timeout=0)["a"]).tolist() == [i] * 3
    # what has several buffers needs room for their names
    monkeypatch.setitem(libshare.weights._PART_MAX, "host", (1 << 20) + 512)
    with pytest.raises(libshare.weights.WeightsError, match="too long.*one of 230 bytes"):
        pool.publish(name, {"a": np.zeros(600, np.uint8), "b": np.zeros(600, np.uint8)})
    assert np.asarray(client.lookup_dict(name, timeout=0)["a"]).tolist() == [1] * 3
    name = "x" * 230
    pool.publish(name, {"a": np.zeros(600, np.uint8), "b": np.ones(600, np.uint8)})
    assert np.asarray(client.lookup_dict(name, timeout=0)["b"]).sum() == 600


def test_a_name_that_is_too_long_is_called_so(client, pool):
    with pytest.raises(libshare.InvalidArgumentError, match="1 to 255 bytes"):
        pool.publish("x" * 256, {"a": np.zeros(3)})


def test_tensors_of_torch_are_taken(client, pool):
    torch = pytest.importorskip("torch")
    pool.publish("x", {"a": torch.arange(6).reshape(2, 3).T, "b": torch.ones(3, dtype=torch.bfloat16)})
    found = client.lookup_dict("x")
    assert np.asarray(found["a"]).tolist() == [[0, 3], [1, 4], [2, 5]] and found["b"].dtype == "bfloat16"
    pool.publish("y", torch.full((2,), 1 + 1j).conj())
    assert np.asarray(client.lookup("y")).tolist() == [1 - 1j] * 2
    with pytest.raises(ValueError, match="'s'.*sparse"):
        pool.publish("x", {"s": torch.eye(3).to_sparse()})
