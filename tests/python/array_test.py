# SPDX-License-Identifier: MIT
"""Arrays over host memory: what they are like, who sees their memory, and how long it stays."""

import copy
import ctypes
import gc
import os
import pickle
import hashlib
import json
import sys
import threading
import weakref

import numpy as np
import pytest

import libshare
from arrow_device import Taken
from conftest import until


def test_numpy_works_in_place(pool):
    a = pool.empty((4, 5), np.float32)
    x = np.asarray(a)
    x[:] = np.arange(20).reshape(4, 5)
    assert (a.shape, a.strides, a.dtype, a.ndim) == ((4, 5), (20, 4), "float32", 2)
    assert (a.size, a.nbytes, a.itemsize, len(a)) == (20, 80, 4, 4)
    assert a.ptr == x.ctypes.data and a.device == "cpu" and not a.readonly
    assert np.array_equal(np.asarray(a), x) and np.shares_memory(np.asarray(a), x)
    assert a.tobytes() == x.tobytes()


def test_values_are_set_and_read_as_in_numpy(pool):
    a = pool.empty((2, 3), np.int32)
    a[...] = 7
    a[1, 1:] = [8, 9]
    assert np.asarray(a).tolist() == [[7, 7, 7], [7, 8, 9]]
    assert float(a[1, 1]) == 8.0 and int(a[1, 2]) == 9
    assert [[int(x) for x in row] for row in a] == [[7, 7, 7], [7, 8, 9]]
    with pytest.raises(TypeError, match="only|size-1|scalar"):
        float(a)
    assert a[0, 0] and not pool.zeros(())  # its value
    assert a and pool.zeros(1) and not a[:0]  # as a list
    with pytest.raises(TypeError, match="without dimensions"):
        iter(a[0, 0])
    with pytest.raises(IndexError):
        a[2] = 1
    a.release()
    with pytest.raises(libshare.ClosedError):
        a[0] = 1


def test_what_cannot_be_copied_says_what_to_do(pool):
    for wrong, error, words in (([1, 2], TypeError, r"np\.array\(\) it first"), ({"a": np.arange(3)}, TypeError, "take a dict"),
                                (np.array(["x", None], object), ValueError, "objects of Python .*libshare.arrow")):
        with pytest.raises(error, match=words):
            pool.array(wrong)
    with pool.producer("c") as tx:
        for wrong in (np.arange(3), 7, "x"):
            with pytest.raises(TypeError, match=r"an Array is needed, not <class .*pool\.array\(\)"):
                tx.send(wrong)


def test_what_takes_numpy_says_so_where_there_is_none(pool, monkeypatch):
    a = pool.zeros(3, "int32")
    monkeypatch.setitem(sys.modules, "numpy", None)
    for use in (lambda: a.__setitem__(..., 7), lambda: float(a[0]), lambda: int(a[0]), lambda: bool(a[0]), lambda: a == 1, lambda: a != 1):
        with pytest.raises(ModuleNotFoundError, match=r"pip install numpy.*memoryview\(a\)") as e:
            use()
        assert e.value.name == "numpy"
    assert memoryview(a)[0] == 0


def test_libraries_of_arrow_have_numbers_in_place(client, pool):
    for name, form in zip("int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split(), "csilCSILefg"):
        a = pool.array(np.arange(6).astype(name))
        taken = Taken(a.__arrow_c_device_array__(None))
        assert (taken.format, taken.flags, taken.length, taken.data, taken.device) == (form, 0, 6, a.ptr, (1, -1))
        part = Taken(a[2:5].__arrow_c_device_array__(requested_schema=None))
        assert (part.length, part.data) == (3, a[2:].ptr)
        part.release()
        taken.release()
    a.publish("a", mode="r")
    Taken(client.lookup("a").__arrow_c_device_array__()).release()  # Arrow's arrays are never written
    client.unpublish("a")
    none = Taken(pool.empty(0).__arrow_c_device_array__())
    assert none.length == 0
    none.release()
    pool.empty(4).__arrow_c_device_array__()  # capsules that nobody takes from
    for dtype in ("bool", "bfloat16", "complex64", "float8_e4m3fn"):
        with pytest.raises(TypeError, match="view"):
            pool.zeros(3, dtype).__arrow_c_device_array__()
    for shaped in (a.reshape(2, 3), a[::2], a[0]):
        with pytest.raises(ValueError, match="flat"):
            shaped.__arrow_c_device_array__()
    a.release()
    with pytest.raises(libshare.ClosedError):
        a.__arrow_c_device_array__()


def test_arrays_are_compared_as_in_numpy_and_hashed_as_objects(pool):
    x = np.arange(6).reshape(2, 3)
    a, b = pool.array(x), pool.array(x)
    b[1, 2] = 0
    for other in (b, np.asarray(b), 4):
        for found, right in ((a == other, x == np.asarray(other)), (other == a, x == np.asarray(other)),
                             (a != other, x != np.asarray(other))):
            assert isinstance(found, np.ndarray) and np.array_equal(found, right)
    assert a[0, 1] == b[0, 1] and not a[1, 2] == b[1, 2]
    assert {a: 1}[a] == 1 and a in {a} and b not in {a} and a in [a]
    with pytest.raises(ValueError, match="ambiguous"):
        assert b in [a]
    # by the object, as tensors of torch; weak sets compare what they find, and NumPy says that it is not one truth
    assert {a: 1, b: 2}[b] == 2 and len({a, b, a}) == 2 and weakref.ref(a)() is a
    assert list(weakref.WeakValueDictionary({1: a}).values())[0] is a
    weak = weakref.WeakSet([a])
    with pytest.raises(ValueError, match="ambiguous"):
        assert a in weak
    with pytest.raises(TypeError, match="view"):
        pool.zeros(3, "bfloat16") == 0  # noqa: B015
    b.release()
    with pytest.raises(libshare.ClosedError):
        a == b  # noqa: B015


@pytest.mark.parametrize(
    "name", "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool complex64 complex128".split()
)
def test_every_dtype_of_numpy_goes_there_and_back(pool, name):
    dtype = np.dtype(name)
    x = np.arange(6).astype(dtype).reshape(2, 3)
    for form in (name, dtype, dtype.type, dtype.str):
        a = pool.empty((2, 3), form)
        assert a.dtype == name
    a.copy_from(x)
    assert np.array_equal(np.asarray(a), x) and np.asarray(a).dtype == dtype
    assert np.array_equal(np.from_dlpack(a), x)
    copy = pool.array(x)
    assert copy.dtype == name and np.array_equal(np.asarray(copy), x)


def test_dtypes_that_are_none_or_not_ours_are_refused(pool):
    for wrong, error in [("float7", ValueError), (">f4", ValueError), (np.dtype(">i2"), ValueError),
                         (object(), TypeError), (3, TypeError), ("U3", ValueError),
                         ([], TypeError), (np.dtype("M8[s]"), ValueError)]:
        with pytest.raises(error):
            pool.empty(3, wrong)
    with pytest.raises(ValueError, match='with its size, as "float64"'):
        pool.empty(3, "float")
    assert pool.empty(3, float).dtype == "float64"
    assert pool.empty(3, int).dtype == "int64"
    assert pool.empty(3, bool).dtype == "bool"


def test_numpy_cannot_have_bfloat16_and_is_told_why(pool):
    a = pool.empty((2, 3), "bfloat16")
    assert a.itemsize == 2
    with pytest.raises(TypeError, match="bfloat16"):
        np.asarray(a)
    np.asarray(a.view("uint16"))[:] = 0x3F80
    assert a.tobytes() == b"\x80\x3f" * 6


def test_shapes_that_cannot_be_are_refused(pool):
    for wrong in [(-1,), (1 << 62, 4), (1,) * 17, (1 << 40, 1 << 40)]:
        with pytest.raises(ValueError):
            pool.empty(wrong, "float32")
    for wrong in ["x", (1.5,), None, {1: 2}.values]:
        with pytest.raises(TypeError):
            pool.empty(wrong, "float32")
    with pytest.raises(libshare.OutOfMemoryError, match="at most 64MiB"):
        pool.alloc(1 << 40)
    with pytest.raises(MemoryError):
        pool.empty(1 << 30, "float64")
    for wrong in [-1, 1 << 64]:
        with pytest.raises(ValueError):
            pool.alloc(wrong)


def test_arrays_without_elements_or_dimensions(pool):
    empty = pool.empty((3, 0, 2), "int32")
    assert empty.size == 0 and np.asarray(empty).shape == (3, 0, 2) and empty.tobytes() == b""
    scalar = pool.array(np.float32(2.5))
    assert scalar.shape == () and np.asarray(scalar) == 2.5
    with pytest.raises(TypeError):
        len(scalar)
    assert pool.zeros((2, 2), "int16").tobytes() == bytes(8)


KEYS = [
    np.s_[1], np.s_[-1], np.s_[1:3], np.s_[::-1], np.s_[1, 2], np.s_[..., 0], np.s_[:, ::2, None],
    np.s_[None, 1], np.s_[2:1], np.s_[0, 1, 2], np.s_[...], np.s_[:, -2:, ::-2], (), np.s_[3:100:2],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_views_are_those_of_numpy(pool, key):
    x = np.arange(4 * 5 * 6, dtype=np.int32).reshape(4, 5, 6)
    a = pool.array(x)
    v = a[key]
    assert v.shape == x[key].shape
    assert np.array_equal(np.asarray(v), x[key])
    assert np.array_equal(np.from_dlpack(v), x[key])
    assert np.shares_memory(np.asarray(v), np.asarray(a)) or v.size == 0
    assert pool.array(v).tobytes() == x[key].tobytes()


def test_keys_that_are_none(pool):
    a = pool.empty((3, 4), "int8")
    for wrong in [3, -4, (0, 4), (0, 0, 0)]:
        with pytest.raises(IndexError):
            a[wrong]
    for wrong in ["x", 1.5, True, [0, 1], (..., ...), np.array([True, False, True])]:
        with pytest.raises((TypeError, IndexError)):
            a[wrong]


def test_reshape_view_transpose(pool):
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    a = pool.array(x)
    assert np.array_equal(np.asarray(a.reshape(6, -1)), x.reshape(6, 4))
    assert np.array_equal(np.asarray(a.reshape((4, 6))), x.reshape(4, 6))
    assert np.array_equal(np.asarray(a.T), x.T)
    assert np.array_equal(np.asarray(a.transpose(1, 0, 2)), x.transpose(1, 0, 2))
    assert np.array_equal(np.asarray(a.transpose((2, -3, 1))), x.transpose(2, 0, 1))
    assert np.array_equal(np.asarray(a.view("uint8")), x.view(np.uint8))
    assert np.array_equal(np.asarray(a[:, 1:].view("int64")), x[:, 1:].view(np.int64))
    assert np.array_equal(np.asarray(a.as_strided((3, 2), (8, 2), "int16", 4)),
                          np.lib.stride_tricks.as_strided(x.reshape(-1)[2:], (3, 2), (8, 2)))
    for wrong in [lambda: a.reshape(5), lambda: a.reshape(-1, -1), lambda: a.T.reshape(24), lambda: pool.empty(0).reshape(0, 2**40, 2**40),
                  lambda: a.T.view("int64"), lambda: a.view("complex128").view("int64")[0].view("complex128").reshape(3),
                  lambda: a.transpose(0, 0, 1), lambda: a.transpose(0), lambda: a[0, 0, 0].view("int8"),
                  lambda: a.as_strided((100,), (2,), "int16", 0), lambda: a.as_strided((3,), (-2,), "int16", 0),
                  lambda: a.as_strided((3,), (3,), "int16", 0),
                  lambda: a.as_strided((2**62,), (0,), "int16", 0), lambda: a.as_strided((2**40, 2**40), (0, 0), "int16", 0), lambda: a.as_strided((3,), (), "int16", 0)]:
        with pytest.raises(ValueError):
            wrong()


def test_memory_stays_as_long_as_anything_that_shows_it(pool, broker):
    a = pool.empty(1000, "int32")
    x = np.asarray(a)
    d = np.from_dlpack(a)
    v = a[10:20]
    x[:] = 7
    a.release()
    assert a.closed and not v.closed
    assert x.sum() == 7000 and d.sum() == 7000 and np.asarray(v).sum() == 70
    for use in (lambda: np.asarray(a), lambda: a[0], lambda: a.ptr, lambda: a.publish("x"), lambda: a.export(),
                lambda: a.tobytes(), lambda: a.__dlpack__(), lambda: a.metadata, lambda: a.raw_metadata(), lambda: a.recipe(), lambda: a.id,
                lambda: a.reshape(-1), lambda: a.info(), lambda: a.status(), lambda: a.record_stream(None)):
        with pytest.raises((libshare.ClosedError, BufferError, TypeError)):
            use()
    a.release()
    pool.set_cache(0)
    until(lambda: len(broker.inspect("buffers")) == 1)
    del v, x
    assert len(broker.inspect("buffers")) == 1 and d.sum() == 7000
    del d
    until(lambda: broker.inspect("buffers") == [])


def test_memory_outlives_client_and_pool(broker):
    with libshare.connect(broker.address) as c, c.pool("test", kind="host") as p:
        a = p.array(np.arange(10))
        x = np.asarray(a)
    assert c.closed and p.closed
    assert x.sum() == 45 and np.asarray(a[2:4]).sum() == 5
    with pytest.raises(libshare.ClosedError):
        p.alloc(1)
    with pytest.raises(libshare.ClosedError):
        c.lookup("x")
    a.publish("still/there")
    assert np.asarray(broker.lookup("still/there")).sum() == 45
    broker.unpublish("still/there")


def test_a_readonly_array_cannot_be_written(client, pool):
    pool.array(np.arange(4)).publish("x")
    r = client.lookup("x")
    assert r.readonly and not np.asarray(r).flags.writeable and not np.from_dlpack(r).flags.writeable
    with pytest.raises(ValueError):
        np.asarray(r)[0] = 1
    with pytest.raises(ValueError):
        r.copy_from(bytes(32))
    with pytest.raises(libshare.DeniedError):
        r.metadata = {}
    with pytest.raises(BufferError):
        r.__dlpack__()  # a consumer from before read-only could be said
    r.readonly_ok = True
    r.__dlpack__()
    w = client.lookup("x", "rw")
    np.asarray(w)[0] = 9
    assert np.asarray(r)[0] == 9
    client.unpublish("x")


def test_dlpack_answers_every_consumer(pool):
    a = pool.empty(4, "int32")
    assert a.__dlpack_device__() == (1, 0)
    named = lambda capsule: repr(capsule).split('"')[1]
    assert named(a.__dlpack__()) == "dltensor"
    assert named(a.__dlpack__(max_version=(0, 8))) == "dltensor"
    assert named(a.__dlpack__(max_version=(1, 0))) == "dltensor_versioned"
    assert named(a.__dlpack__(stream=None, max_version=(1, 3), dl_device=(1, 0), copy=False)) == "dltensor_versioned"
    for wrong in [dict(copy=True), dict(dl_device=(2, 0)), dict(dl_device="gpu"), dict(no_such=1)]:
        with pytest.raises(BufferError):
            a.__dlpack__(**wrong)


def test_dlpack_capsules_nobody_took_give_back(pool, broker):
    pool.set_cache(0)
    a = pool.empty(4, "int32")
    capsules = [a.__dlpack__(), a.__dlpack__(max_version=(1, 0))]
    del a
    assert len(broker.inspect("buffers")) == 1
    del capsules
    until(lambda: broker.inspect("buffers") == [])


def test_the_exchange_api_borrows_and_owns(pool):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    where = get(type(pool.empty(1)).__dlpack_c_exchange_api__, b"dlpack_exchange_api")

    class Tensor(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("id", ctypes.c_int32),
                    ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                    ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                    ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64)]

    class Managed(ctypes.Structure):
        pass

    deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
    Managed._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                        ("deleter", deleter), ("flags", ctypes.c_uint64), ("tensor", Tensor)]
    borrow = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
    own = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.POINTER(Managed)))
    words = ctypes.cast(where, ctypes.POINTER(ctypes.c_void_p))
    version = ctypes.cast(where, ctypes.POINTER(ctypes.c_uint32))
    assert version[0] == 1 and words[1] is None
    a = pool.array(np.arange(6, dtype=np.int16).reshape(2, 3))[:, 1:]
    t, m = Tensor(), ctypes.POINTER(Managed)()
    assert borrow(words[5])(a, t) == 0
    assert (t.data, t.ndim, t.code, t.bits, t.shape[:2], t.strides[:2]) == (a.ptr, 2, 0, 16, [2, 2], [3, 1])
    assert own(words[3])(a, ctypes.byref(m)) == 0
    a.release()
    assert ctypes.c_int16.from_address(m.contents.tensor.data).value == 1
    m.contents.deleter(m)
    with pytest.raises(libshare.ClosedError):
        borrow(words[5])(a, t)


def test_buffers_of_all_contiguities(pool):
    a = pool.array(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert bytes(a) == bytes(range(6)) and memoryview(a).contiguous
    assert memoryview(a.T).f_contiguous and not memoryview(a.T).c_contiguous
    assert memoryview(a[:, ::2]).tolist() == [[0, 2], [3, 5]]
    with pytest.raises(BufferError):
        hashlib.sha256(a[:, ::2])
    m = memoryview(a)
    a.release()
    assert m.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_metadata_is_json(client, pool):
    a = pool.empty(3)
    assert a.metadata is None
    assert a.raw_metadata() is None
    with pytest.raises(TypeError, match="as JSON, which has no ndarray: tolist"):
        a.metadata = {"boxes": np.zeros(2)}
    with pytest.raises(TypeError, match="as JSON, which has no set"):
        a.metadata = {"boxes": {1}}
    a.metadata = {"frame": np.int64(7), "score": np.float32(0.5), "good": np.bool_(True)}
    assert a.metadata == {"frame": 7, "score": 0.5, "good": True}
    a.metadata = {"frame": 7, "é": [1, None]}
    assert json.loads(a.raw_metadata()) == {"frame": 7, "é": [1, None]}
    a.publish("m")
    read = client.lookup("m").metadata
    assert read["frame"] == 7 and read["é"] == [1, None]
    with pytest.raises(libshare.InvalidArgumentError):
        a.metadata = 3
    with pytest.raises(TypeError):
        a.metadata = {"x": object()}
    client.unpublish("m")


def test_recipe_and_info_say_where_it_lies(pool):
    import mmap
    import os

    a = pool.array(b"recipe")
    r = a.recipe()
    with mmap.mmap(r["fd"], r["segment_size"], prot=mmap.PROT_READ) as m:
        assert m[r["offset"]:r["offset"] + 6] == b"recipe"
    os.close(r["fd"])
    assert r["kind"] == "host" and not r["readonly"] and len(r["pointer"]) == 64
    info = a.info()
    assert info["kind"] == "host" and info["size"] == 6 and info["offset"] == r["offset"]
    assert info["device"] is None and info["ordinal"] == -1 and info["ordered"] == "nothing"
    assert a.status()


def test_copies_have_memory_of_their_own_in_the_same_pool(client, pool, broker):
    with client.pool("other", kind="host", limit="64MiB"):
        a = pool.array(np.arange(12, dtype=np.float32).reshape(3, 4))
        half = pool.array(np.array([1, 2], np.uint16), "bfloat16")
        clients = len(broker.inspect("clients"))
        for made in (copy.copy, copy.deepcopy, lambda x: copy.deepcopy({"w": x})["w"]):
            b, part, c = made(a), made(a.T[1:]), made(half)
            assert (b.shape, b.dtype, b.readonly) == ((3, 4), "float32", False) and b.id != a.id
            assert part.shape == (3, 3) and part.contiguous and part.nbytes == part.info()["size"]
            assert c.dtype == "bfloat16" and c.tobytes() == half.tobytes()
            a.fill_zero()
            assert np.array_equal(np.asarray(b), np.arange(12).reshape(3, 4))
            assert np.array_equal(np.asarray(part), np.arange(12).reshape(3, 4).T[1:])
            a.copy_from(np.arange(12, dtype=np.float32).reshape(3, 4))
            rows = {int(row["buffer"], 16): row["pool"] for row in broker.inspect("buffers")}
            assert {rows[x.id] for x in (b, part, c)} == {"test"}
        both = copy.deepcopy([a, a])
        assert both[0] is both[1]
        a.publish("a")
        mine = copy.copy(client.lookup("a"))
        assert not mine.readonly and mine.id != a.id
        client.unpublish("a")
        assert len(broker.inspect("clients")) == clients


def test_what_cannot_be_copied_says_so(client, pool):
    for thing in (client, pool, client.host_stream()):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                copied(thing)
    fence = client.record(stream=None)
    assert (copy.copy(fence).timeline, copy.deepcopy(fence).value) == (fence.timeline, fence.value)


def test_the_recipe_of_a_view_leads_to_the_view(pool):
    import mmap

    pool.empty(5000, "uint8")
    whole = pool.array(np.random.default_rng(1).integers(0, 256, (64, 64), np.uint8))
    for part in (whole, whole[16:32], whole[1:, 7], whole.view("uint16")[3], whole[::-1]):
        r = part.recipe()
        with mmap.mmap(r["fd"], r["segment_size"], prot=mmap.PROT_READ) as m:
            assert m[r["offset"]] == np.asarray(part).view(np.uint8).flat[0]
            if part.contiguous:
                assert m[r["offset"]:r["offset"] + part.nbytes] == part.tobytes()
        os.close(r["fd"])
        assert r["offset"] == part.info()["offset"] + part.offset


def test_what_a_view_says_of_its_buffer_is_the_same_for_all_views(client, pool):
    a = pool.array(np.arange(16))
    v = a[4:8]
    assert v.info() == a.info() and v.info()["size"] == 128 and v.id == a.id and v.offset == 32
    v.metadata = {"of": "the buffer"}
    assert a.metadata == {"of": "the buffer"}
    # the right to a view is one to its buffer, as help() says
    token = v.export()
    w = client.import_(token)
    assert np.asarray(w).tolist() == [4, 5, 6, 7]
    assert np.asarray(w.as_strided((16,), (8,), "int64", 0)).tolist() == list(range(16))


def test_arrays_without_elements_are_found_in_their_buffer(client, pool):
    a = pool.array(np.arange(20, dtype=np.float32).reshape(4, 5))
    after = pool.array(np.arange(20, dtype=np.float32))  # which begins where the first ends, say
    at_the_end = a.as_strided((0, 5), (20, 4), "float32", 80)
    assert at_the_end.offset == 80 and a.ptr <= at_the_end.ptr < a.ptr + 80
    v = np.asarray(a)
    behind = np.lib.stride_tricks.as_strided(v, (0, 5))[:, 5:]
    for empty, shape in ((v[:0], (0, 5)), (v[4:], (0, 5)), (v[:, 5:], (4, 0)), (behind, (0, 0)),
                         (np.asarray(at_the_end), (0, 5)), (np.from_dlpack(a)[4:], (0, 5)), (v.T[5:].T[:0], (0, 0))):
        found = libshare.array_of(empty)
        assert found.id == a.id and found.shape == shape and found.dtype == "float32"
        found.publish("empty")
        assert client.lookup("empty").shape == shape
    none = pool.empty((0, 5), "int16")
    for made in (np.asarray, np.from_dlpack):
        found = libshare.array_of(made(none))
        assert found.id == none.id and found.shape == (0, 5)
    with pytest.raises(ValueError, match="does not lie in a pool"):
        libshare.array_of(np.empty((0, 5)))
    assert np.asarray(after).sum() == 190
    client.unpublish("empty")


UNKNOWN = {
    "record": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]), "dates": np.array(["2026-01-01"], "M8[ns]"),
    "span": np.array([5], "m8[s]"), "fixed": np.array([b"abc"]), "text": np.array(["abc"]),
    "big": np.array([1, 2], ">i4"), "long": np.array([1.5], np.longdouble),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_dtype_that_is_none_here_goes_as_bytes_and_the_error_says_so(client, pool, kind):
    x = UNKNOWN[kind]
    for refused in (lambda: pool.array(x), lambda: pool.empty(x.shape, x.dtype)):
        with pytest.raises(ValueError) as e:
            refused()
        assert 'pool.array(x.view("uint8"))' in str(e.value) and "numpy.asarray(a).view(x.dtype)" in str(e.value)
    with pytest.raises(TypeError, match="of others.*view"):
        pool.empty(3, [("id", "i4")])
    a = pool.array(x.view("uint8"))
    assert np.array_equal(np.asarray(a).view(x.dtype), x)
    a.publish("bytes")
    assert np.array_equal(np.asarray(client.lookup("bytes")).view(x.dtype), x)
    client.unpublish("bytes")
    with pytest.raises(ValueError, match="other byte order|does not know"):
        libshare.array_of(np.asarray(a).view(x.dtype))


def test_a_format_without_a_dtype_fills_bytes_only(pool):
    pairs = np.array([(1, 2)], [("a", "i4"), ("b", "i4")])
    for wrong in (pool.empty(1, "float64"), pool.empty((1, 8), "uint8").view("int64")):
        with pytest.raises(TypeError, match="no dtype for the source's format 'T{"):
            wrong.copy_from(pairs)
    a = pool.empty(8, "uint8")
    a.copy_from(pairs)
    assert a.tobytes() == pairs.tobytes()


def test_masked_arrays_are_refused_wherever_they_come(pool):
    a = pool.array(np.arange(4))
    masked = np.ma.masked_array(np.asarray(a), [0, 1, 0, 1])
    for use in (lambda: libshare.array_of(masked), lambda: pool.array(masked), lambda: a.copy_from(masked),
                lambda: libshare.array_of(masked[:0])):
        with pytest.raises(ValueError, match=r"mask would be lost: .*filled\(\)"):
            use()
    assert pool.array(masked.filled(7)).tobytes() == np.array([0, 7, 2, 7]).tobytes()
    assert libshare.array_of(masked.data).id == a.id


def test_copies_do_not_turn_numbers_into_others(pool):
    x = np.arange(3)
    for copy, words in [
        (lambda: pool.array(x, "float64"), r'the source is of int64, not float64: convert it first \(x.astype\("float64"\)\)'),
        (lambda: pool.array(x.astype("int32"), "float32"), "of int32, not float32"),
        (lambda: pool.array(x, "float32"), "of int64, not float32"),
        (lambda: pool.array(x, "uint8"), "of int64, not uint8"),
        (lambda: pool.empty(3, "float64").copy_from(x), "of int64, not float64"),
        (lambda: pool.empty(3, "float64").copy_from(pool.array(x)), "of int64, not float64"),
        (lambda: pool.array(pool.array(x), "float64"), "of int64, not float64"),
        (lambda: pool.array(x.astype("int16"), "bfloat16"), "of int16, not bfloat16"),
        (lambda: pool.array(x.astype(">i4"), "int32"), "of the other byte order"),
        (lambda: pool.empty(3, "int32").copy_from(x.astype(">i4")), "of the other byte order"),
        (lambda: pool.array(x.astype("float16"), "bfloat16"), "of float16, not bfloat16"),
        (lambda: pool.array([1, 2, 3]), r"np.array\(\) it first"),
    ]:
        with pytest.raises(TypeError, match=words):
            copy()
    with pytest.raises(ValueError, match="dtype for the format '>i'"):
        pool.array(x.astype(">i4"))


def test_copies_take_the_bits_of_what_numpy_has_not_and_plain_bytes_for_anything(pool):
    bits = np.array([0x3F80, 0x4000, 0x4040], np.uint16)
    a = pool.array(bits, "bfloat16")
    assert a.dtype == "bfloat16" and a.tobytes() == bits.tobytes()
    b = pool.empty(3, "bfloat16")
    b.copy_from(a)
    assert b.tobytes() == a.tobytes() and pool.array(a[::2]).tobytes() == bits[::2].tobytes()
    x = np.arange(3, dtype=np.float64)
    c = pool.empty(3, "float64")
    for source in (x.tobytes(), bytearray(x.tobytes()), x.view(np.uint8), memoryview(x).cast("B"), pool.array(x.tobytes())):
        c.copy_from(bytes(24))
        c.copy_from(source)
        assert np.array_equal(np.asarray(c), x)
    c.copy_from(memoryview(x))
    d = pool.alloc(24)
    d.copy_from(x)
    assert d.tobytes() == x.tobytes() and np.array_equal(np.asarray(d.view("float64")), x)
    assert pool.array(x, np.float64).dtype == "float64" and pool.array(np.arange(3, dtype=np.longlong)).dtype == "int64"
    z = pool.array(np.array([1 + 2j]))
    assert pool.array(z).dtype == "complex128" and np.asarray(pool.array(z[::1]))[0] == 1 + 2j


def test_numpy_says_that_an_array_was_released(pool):
    a = pool.empty(3, "float64")
    a.release()
    for see in (np.asarray, np.array, memoryview, bytes, np.from_dlpack):
        with pytest.raises(libshare.ClosedError):
            see(a)
    b = pool.empty(3, "bfloat16")
    b.release()
    with pytest.raises(libshare.ClosedError):
        np.asarray(b)


def test_copies_check_their_sizes(pool):
    a = pool.empty((2, 2), "int32")
    a.copy_from(np.arange(8, dtype=np.int32).reshape(2, 4)[:, ::2])
    assert np.asarray(a).tolist() == [[0, 2], [4, 6]]
    for wrong in [bytes(15), bytes(17)]:
        with pytest.raises(ValueError):
            a.copy_from(wrong)
    b = pool.empty((6, 4), "int32")
    for wrong in [np.zeros((4, 6), np.int32), np.zeros(24, np.int32), pool.zeros((4, 6), "int32")]:
        with pytest.raises(ValueError, match="another shape"):
            b.copy_from(wrong)
    b.copy_from(np.zeros(96, np.uint8))
    with pytest.raises(TypeError):
        a.copy_from(3)
    with pytest.raises(ValueError):
        a.T.copy_from(bytes(16))


def test_references_do_not_leak(pool):
    def work():
        a = pool.empty((8, 8), "float32")
        b = a[1:, ::2].T
        x = np.asarray(b)
        d = np.from_dlpack(a)
        m = memoryview(a)
        a.__dlpack__(), a.shape, a.strides, a.dtype, a.tobytes(), a.info(), repr(a)
        for wrong in (lambda: a["x"], lambda: pool.empty(3, "nope"), lambda: a.reshape(7), lambda: a.__dlpack__(copy=True)):
            try:
                wrong()
            except (TypeError, ValueError, BufferError):
                pass
        a.release()
        return x.sum() + d.sum() + len(m)

    for _ in range(50):
        work()
    gc.collect()
    blocks, uses = sys.getallocatedblocks(), sys.getrefcount(type(pool.empty(1)))
    for _ in range(2000):
        work()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200
    assert sys.getrefcount(type(pool.empty(1))) - uses < 20


def test_arrays_can_be_weakly_referenced(pool):
    a = pool.empty(1)
    gone = []
    w = weakref.ref(a, gone.append)
    assert w() is a
    del a
    assert w() is None and gone


def test_threads_allocate_and_release_at_once(pool):
    failures = []

    def work(seed):
        try:
            for i in range(300):
                a = pool.array(np.full(100, seed * 1000 + i))
                v = a[10:20]
                a.release()
                assert (np.asarray(v) == seed * 1000 + i).all()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_one_array_is_released_by_many_threads_at_once(pool):
    for _ in range(50):
        a = pool.array(np.arange(1000))
        start = threading.Barrier(4)

        def use():
            start.wait()
            try:
                a.tobytes()
                a[3:].tobytes()
            except libshare.ClosedError:
                pass
            a.release()

        threads = [threading.Thread(target=use) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert a.closed


class Releases:
    """Gives an Array up as soon as the extension asks anything of it."""

    def __init__(self, array):
        self.array = array

    def __cuda_stream__(self):
        self.array.release()
        return 0, 0

    def __getitem__(self, i):
        self.array.release()
        return 1


def test_an_argument_that_gives_the_array_up_finds_it_closed(pool):
    for use in ("tobytes", "fill_zero", "copy_from"):
        a = pool.array(b"12345678")
        v = a[:4]
        with pytest.raises(libshare.ClosedError):
            getattr(a, use)(*([bytes(8)] if use == "copy_from" else []), stream=Releases(a))
        assert bytes(v) == b"1234"  # which has a reference of its own
    a = pool.array(b"12345678")
    with pytest.raises(libshare.ClosedError):
        a.__dlpack__(max_version=Releases(a))


def test_who_uses_an_array_keeps_it_whatever_others_fail_at(client, pool, broker):
    a = pool.array(b"12345678")
    a.publish("a")  # so that reclaim() waits
    ends = []

    def wait():
        try:
            ends.append(a.reclaim(timeout=None))
        except libshare.Error as e:
            ends.append(type(e))

    waits = threading.Thread(target=wait)
    waits.start()
    until(lambda: any(row["resource"] == "waits" and row["used"] for row in broker.inspect("users")))
    with pytest.raises(libshare.ClosedError):
        a.tobytes(stream=Releases(a))
    waits.join()
    assert ends == [libshare.ClosedError]
    client.unpublish("a")


@pytest.mark.parametrize("seconds", [float("nan"), -1, 0.0001, 1e12])
def test_a_token_without_end_is_asked_for_as_one(pool, seconds):
    with pytest.raises(ValueError):
        pool.array(b"1").export(timeout=seconds)


def test_steps_as_large_as_there_are(pool):
    a = pool.array(np.arange(12, dtype=np.int64).reshape(3, 4))
    for key in (np.s_[:: 2**62], np.s_[:, :: 2**62], np.s_[:: -(2**63)], np.s_[1 :: 2**63 - 1, 2]):
        assert np.array_equal(np.asarray(a[key]), np.asarray(a)[key])
