# SPDX-License-Identifier: MIT
"""Tables of Arrow: what is in the pool is the values themselves, by address, for pyarrow and for
whatever else is installed of polars, DuckDB and pandas."""

import datetime
import decimal
import gc
import multiprocessing.resource_tracker
import random
import re
import struct
import subprocess
import sys

import pytest

import libshare
from conftest import until

pa = pytest.importorskip("pyarrow", reason="there is no pyarrow here")

import libshare.arrow as la  # noqa: E402

multiprocessing.resource_tracker.ensure_running()

N = 1000


def lies_in(address, array):
    return array.ptr <= address < array.ptr + array.nbytes


def buffers(column):
    for chunk in column.chunks:
        for part in (chunk, chunk.dictionary if pa.types.is_dictionary(chunk.type) else None):
            for buffer in part.buffers() if part is not None else ():
                if buffer is not None and buffer.size:
                    yield buffer


def flat():
    """A column of each kind that lies in buffers of its own."""
    texts = ["", "a", "a string that is longer than twelve bytes", None, "ä"]
    wanted = {
        "bool": pa.array([True, None, False, False, True] * N),
        "null": pa.nulls(5 * N),
        "day": pa.array([datetime.date(2026, 1, 1)] * 5 * N),
        "time": pa.array([datetime.datetime(2026, 1, 1)] * 5 * N, pa.timestamp("us", "UTC")),
        "decimal": pa.array([decimal.Decimal("1.25")] * 5 * N, pa.decimal128(20, 2)),
        "fixed": pa.array([b"abc", None, b"def", b"ghi", b"   "] * N, pa.binary(3)),
        "no null": pa.array(texts[:3] * N + texts[4:] * 2 * N),
    }
    for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()):
        wanted[str(kind)] = pa.array([1, 2, None, 4, 5] * N, kind)
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        wanted[str(kind)] = pa.array(texts * N, kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        wanted[str(kind)] = pa.array([text and text.encode() for text in texts] * N, kind)
    for kind in (pa.string(), pa.large_string()):
        wanted[f"dictionary {kind}"] = pa.array(texts * N, kind).dictionary_encode()
    wanted["dictionary int64"] = pa.array([5, 6, None, 7, 5] * N).dictionary_encode()
    return pa.table(wanted, metadata={"of": "the table"})


def nested():
    return pa.table({
        "list": pa.array([[1, 2, 3], [], None, [4]] * N),
        "struct": pa.array([{"a": 1, "b": "x"}] * 4 * N),
        "map": pa.array([[("k", 1)]] * 4 * N, pa.map_(pa.string(), pa.int32())),
        "list of dictionaries": pa.array([["a"], ["b"], ["a", "b"], []] * N,
                                         pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([4 * N], pa.int32()), pa.array([5])),
        "flat": pa.array([1.5] * 4 * N),
    })


def chunked():
    return pa.concat_tables([pa.table({"d": pa.array(words).dictionary_encode(), "n": range(len(words))})
                             for words in (["a", "b"], ["c", "a", "c"], ["b"] * 9)])


def same(found, table):
    assert found.schema.equals(table.schema, check_metadata=True)
    assert found.equals(table)
    found.validate(full=True)


@pytest.mark.parametrize("make", [flat, nested, chunked])
def test_every_column_is_in_place(client, pool, make):
    table = make()
    assert la.publish(pool, "t", table) == client.lookup("t").version
    found, there = la.lookup(client, "t"), client.lookup("t")
    same(found, table)
    for field, column in zip(found.schema, found.columns):
        of = list(buffers(column))
        assert all(lies_in(b.address, there) and not b.is_mutable for b in of), field
        least = 64 if make is not nested or field.name == "flat" else 8
        assert all(b.address % least == 0 for b in of), field
    client.unpublish("t")
    la.collect()


@pytest.mark.parametrize("start", [0, 1, 7, 8, 13, 64, 4999])
def test_a_part_of_a_table_takes_along_no_more_than_itself(client, pool, start):
    table = flat().drop_columns(["string_view", "binary_view"])  # whose texts lie in no order
    for count in (0, 1, 5, 9, 100):
        part = table.slice(start, count)
        array = la.to_pool(pool, part)
        same(la.table_of(array), part)
        assert array.nbytes < 40000 + 400 * count
    same(la.table_of(la.to_pool(pool, flat().slice(start, 9))), flat().slice(start, 9))
    both = pa.concat_tables([table.slice(start, 9), table.slice(0, 3), table.slice(start, 0)])
    same(la.table_of(la.to_pool(pool, both)), both)


def test_what_several_columns_have_is_there_once(pool):
    column = pa.array(range(100_000))
    assert la.to_pool(pool, pa.table({"a": column, "b": column})).nbytes < 1.1 * column.nbytes
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 10), pa.array(["x" * 50_000, "y"]))
    twice = pa.table({"a": pa.chunked_array([words, words.slice(3, 4)]),
                      "b": pa.chunked_array([words, words.slice(0, 4)])})
    array = la.to_pool(pool, twice)
    same(la.table_of(array), twice)
    assert array.nbytes < 60_000


def test_tables_without_columns_or_rows(pool):
    for table in (pa.table({}), flat().slice(0, 0), nested().slice(0, 0), pa.table({"a": pa.chunked_array([], pa.int8())})):
        same(la.table_of(la.to_pool(pool, table)), table)
        same(la.table_of(la.to_pool(pool, table, compression="zstd")), table)
    for compression in (None, "zstd"):
        rows = la.table_of(la.to_pool(pool, pa.table({"a": [1, 2, 3]}).select([]), compression=compression))
        assert (rows.num_rows, rows.num_columns) == (3, 0)


def test_dictionaries_may_be_empty(pool):
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array([], pa.string()))
    for values in (nothing, nothing.slice(0, 0), pa.array(["", ""]).dictionary_encode(),
                   pa.DictionaryArray.from_arrays(pa.array([None], pa.int8()), pa.array([], pa.bool_()))):
        table = pa.table({"d": pa.chunked_array([values, values])})
        same(la.table_of(la.to_pool(pool, table)), table)


class Celsius(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.float32(), "libshare.test.celsius")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls()


def test_types_of_others_are_what_the_reader_knows_of_them(pool):
    values = pa.array([1.5, None, 3], pa.float32())
    table = pa.table({"t": pa.ExtensionArray.from_storage(Celsius(), values)})
    array = la.to_pool(pool, table)
    assert la.table_of(array)["t"].type == pa.float32()  # with its name in the field's metadata
    pa.register_extension_type(Celsius())
    try:
        found = la.table_of(array)
        assert found["t"].type == Celsius() and found["t"].chunk(0).storage.equals(values)
        assert lies_in(found["t"].chunk(0).storage.buffers()[1].address, array)
    finally:
        pa.unregister_extension_type("libshare.test.celsius")


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_types_that_readers_would_not_have_are_refused(client, pool, compression):
    places = pa.array([0, 1, None])
    twice = pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"]).dictionary_encode())
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"1" * 16, b"2" * 16], pa.binary(16)))
    degrees = pa.ExtensionArray.from_storage(Celsius(), pa.array([1.5, 2], pa.float32()))
    for column in (twice, pa.DictionaryArray.from_arrays(places, uuids), pa.DictionaryArray.from_arrays(places, degrees)):
        for wrong in (column, pa.StructArray.from_arrays([column], ["in"]),
                      pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), column)):
            with pytest.raises(la.TableError, match="a column has a type that Arrow's IPC does not keep"):
                la.publish(pool, "t", pa.table({"right": pa.array([1] * len(wrong)), "wrong": wrong}), compression=compression)
    table = pa.table({"uuid": uuids, "in": pa.StructArray.from_arrays([uuids], ["uuid"]),
                      "words": pa.array(["a", "b"]).dictionary_encode()})
    same(la.table_of(la.to_pool(pool, table, compression=compression)), table)
    unknown = pa.table({"t": pa.StructArray.from_arrays([degrees], ["degrees"])})
    found = la.table_of(la.to_pool(pool, unknown, compression=compression))
    assert found["t"].type.field(0).type == pa.float32()
    assert client.inspect("names") == []


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_is_compressed_is_smaller_and_unpacked_by_the_reader(client, pool, compression):
    table = pa.concat_tables([flat().select(["int32", "string"])] * 10).combine_chunks()
    plain = la.to_pool(pool, table).nbytes
    la.publish(pool, "t", table, compression=compression)
    found, there = la.lookup(client, "t"), client.lookup("t")
    assert found.equals(table) and there.nbytes < plain / 4
    assert not any(lies_in(b.address, there) for c in found.columns for b in buffers(c))
    client.unpublish("t")
    la.collect()
    for wrong in ("zork", "gzip", "LZ4", 5):
        with pytest.raises(la.TableError, match=f'"lz4" or None, not {wrong!r}'):
            la.to_pool(pool, table, compression=wrong)


def test_what_others_wrote_as_arrow_is_read_in_place(pool):
    table = flat().select(["int32", "string"])
    for make in (pa.ipc.new_stream, pa.ipc.new_file):
        sink = pa.BufferOutputStream()
        with make(sink, table.schema) as writer:
            writer.write_table(table)
        array = pool.array(memoryview(sink.getvalue()).cast("B"), "uint8")
        found = la.table_of(array)
        assert found.equals(table) and all(lies_in(b.address, array) for c in found.columns for b in buffers(c))


def test_a_column_keeps_the_memory_when_all_else_is_gone(client, pool):
    la.publish(pool, "t", flat(), warm=False)
    column = la.lookup(client, "t")["double"]
    client.unpublish("t")
    gc.collect()
    others = [la.to_pool(pool, pa.table({"x": [7.0] * 5 * N})) for _ in range(20)]
    assert column.slice(0, 5).to_pylist() == [1, 2, None, 4, 5] and len(others) == 20


def read(address, out):
    with libshare.connect(address) as client, client.pool("test", create=False) as pool, \
            pool.consumer("tables") as rx, pool.producer("answers") as tx:
        tx.send(meta="ready")
        for m in rx:
            table = la.table_of(m.array)
            array = m.array
            within = all(lies_in(b.address, array) for c in table.columns for b in buffers(c))
            answer = table.select(["int32"])
            del array, table
            tx.send(la.to_pool(pool, answer), meta=within)
            del answer
        tx.drain()


def test_tables_go_through_channels(client, pool):
    table = flat()
    context = multiprocessing.get_context("spawn")
    with pool.producer("tables") as tx, pool.consumer("answers") as rx:
        child = context.Process(target=read, args=(client.address, None))
        child.start()
        rx.recv().ack()
        for _ in range(3):
            tx.send(la.to_pool(pool, table))
            with rx.recv() as m:
                assert m.meta is True
                found = la.table_of(m.array)
            assert found.equals(table.select(["int32"]))  # which was acknowledged, and is kept
            del found, m
        tx.close()
        child.join()
    assert child.exitcode == 0


def test_versions_that_replace_each_other_take_turns_in_warm_memory(client, pool):
    def version(value, rows=5 * N):
        la.publish(pool, "t", pa.table({"x": [value] * rows}))
        return client.lookup("t").id

    first, second = version(1), version(2)
    assert first != second
    assert [version(3), version(4), version(5, 5 * N - 20)] == [first, second, first]
    held = la.lookup(client, "t")  # a reader that keeps its version
    later = {version(value) for value in range(6, 16)}
    assert first not in later and len(later) <= 3 and held["x"].to_pylist() == [5] * (5 * N - 20)
    del held
    assert version(0, 50 * N) not in later | {first}  # it does not fit
    assert la.collect() <= 1  # the one that is published
    la.publish(pool, "t", pa.table({"x": [1] * 50 * N}))
    client.unpublish("t")
    assert la.collect() == 0 and client.inspect("buffers") == []


def test_a_version_that_nobody_has_is_written_again_though_the_one_before_is_in_use(client, pool):
    la.publish(pool, "t", pa.table({"x": [1] * N}))
    held = la.lookup(client, "t")
    la.publish(pool, "t", pa.table({"x": [2] * N}))
    second = client.lookup("t").id
    client.unpublish("t")
    la.publish(pool, "t", pa.table({"x": [3] * N}))
    assert client.lookup("t").id == second and held["x"].to_pylist() == [1] * N


def test_what_readers_have_is_not_written_to_when_the_broker_is_gone():
    with libshare.connect("embedded") as owner, libshare.connect(owner.address) as client, \
            libshare.connect(owner.address) as other, client.pool("test", kind="host", limit="16MiB") as pool:
        la.publish(pool, "t", pa.table({"x": [1] * N}))
        held = la.lookup(other, "t")
        owner.close()

        def is_gone():
            try:
                la.publish(pool, "t", pa.table({"x": [2] * N}))
            except libshare.Error:
                return True
            return False

        until(is_gone)
        assert held["x"].to_pylist() == [1] * N
        with pytest.raises(libshare.Error):
            la.publish(pool, "t", pa.table({"x": [3] * N}))
        assert held["x"].to_pylist() == [1] * N and la.collect() == 0


def test_what_is_writable_or_unwanted_is_not_kept(client, pool):
    for options in ({"mode": "rw"}, {"warm": False}):
        la.publish(pool, "t", flat(), **options)
        assert client.lookup("t", mode="rw" if "mode" in options else "r").readonly is ("mode" not in options)
        client.unpublish("t")
        assert la.collect() == 0 and client.inspect("buffers") == []
    la.publish(pool, "t", flat())
    with pytest.raises(libshare.DeniedError):
        client.lookup("t", mode="rw")
    client.unpublish("t")
    la.collect()


def test_memory_that_is_kept_gives_way(client, pool):
    big = pa.table({"x": pa.array(range(3 << 20))})  # 24 of 64 MiB
    for name in ("a", "b"):
        la.publish(pool, name, big)
        client.unpublish(name)
    la.publish(pool, "c", pa.table({"x": pa.array(range(5 << 20))}))
    client.unpublish("c")
    with pytest.raises(libshare.OutOfMemoryError):
        la.publish(pool, "d", pa.table({"x": pa.array(range(9 << 20))}))
    assert la.collect() == 0


def test_what_is_no_table_says_what_is(client, pool):
    for wrong, words in (([1, 2], "list"), ((), "tuple"), (3, "int"), ("x", "str"), (None, "NoneType"), (pool.zeros(3), "Array")):
        with pytest.raises(TypeError, match=f"table of pyarrow.*'{words}'"):
            la.publish(pool, "t", wrong)
    with pytest.raises(la.TableError, match="no table"):
        la.table_of(pool.zeros(100, "uint8"))
    with pytest.raises(la.TableError, match="no table"):
        la.table_of(pool.empty(0, "uint8"))
    with pytest.raises(la.TableError, match="newer"):
        la.table_of(pool.array(b"ShArrow2" + bytes(100)))
    with pytest.raises(la.TableError, match="one after the other"):
        la.table_of(pool.zeros(100, "uint8")[::2])
    for wrong, words in (({"a": [1], "b": [1, 2]}, "'dict': .* expected length 1"), ({"a": [object()]}, "'dict': .*object")):
        with pytest.raises(la.TableError, match=f"cannot make a table of this {words}"):
            la.publish(pool, "t", wrong)
    assert issubclass(la.TableError, libshare.Error) and issubclass(la.TableError, ValueError)


WRONG = (-(2**63), -2, -1, 0, 1, 3, 8, 64, 1 << 20, 1 << 31, 1 << 40, 1 << 62, 2**63 - 1)


def test_each_number_of_each_type_may_be_wrong(pool):
    wanted = flat().slice(0, 20)
    wanted = wanted.append_column("intervals", pa.array([(1, 2, 3), None] * 10, pa.month_day_nano_interval()))
    wanted = wanted.append_column("of no bytes", pa.array([b"", None] * 10, pa.binary(0)))
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"1" * 16, None] * 10, pa.binary(16)))
    wanted = wanted.append_column("uuid", uuids)
    for name in wanted.column_names:
        table = wanted.select([name])
        array = la.to_pool(pool, table)
        good = bytes(array.tobytes())
        head = struct.unpack_from("<8sQQQQ", good)
        start = 40 + -(-head[1] // 64) * 64
        refused = 0
        for at in range(start, start + 8 * head[2], 8):
            for wrong in WRONG:
                array.copy_from(good[:at] + struct.pack("<q", wrong) + good[at + 8 :])
                try:
                    found = la.table_of(array)
                except la.TableError:
                    refused += 1
                    continue
                assert found.schema == table.schema
                try:
                    found.validate(full=True)
                except pa.ArrowInvalid:
                    continue
                assert found.slice(0, 100).to_pylist() is not None
        assert refused > 3 * head[2], name


def test_lengths_of_a_column_are_not_larger_together_than_a_number_may_be(pool):
    table = pa.table({"n": pa.chunked_array([pa.nulls(1), pa.nulls(1)])})
    array = la.to_pool(pool, table)
    good = bytes(array.tobytes())
    chunk = struct.pack("<qqqqq", 1, 1, 1, -1, 0)  # the length, how many are null, buffers, and that one
    assert good.count(chunk) == 2
    array.copy_from(good.replace(chunk, struct.pack("<qqqqq", 1 << 62, 1 << 62, 1, -1, 0)))
    with pytest.raises(la.TableError, match="lengths"):
        la.table_of(array)


def test_columns_of_others_are_checked_as_ours_are(pool):
    """Offsets that end behind what they are for, in a stream of Arrow's IPC and in that of a table."""
    table = pa.table({"list": pa.array([[1, 2], [3]], pa.list_(pa.int32()))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    for good in (sink.getvalue().to_pybytes(), bytes(la.to_pool(pool, table).tobytes())):
        offsets = struct.pack("<iii", 0, 2, 3)
        assert good.count(offsets) == 1
        with pytest.raises(la.TableError):
            la.table_of(pool.array(good.replace(offsets, struct.pack("<iii", 0, 2, 1 << 20))))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_damaged_is_refused_or_is_a_table(pool, seed):
    rng = random.Random(seed)
    array = la.to_pool(pool, pa.concat_tables([flat().slice(0, 20), flat().slice(3, 5)]) if seed % 2 else nested().slice(0, 20))
    good = bytes(array.tobytes())
    head = struct.unpack_from("<8sQQQQ", good)
    length = 40 + head[1] + 64 + 8 * head[2]  # what says where all else lies
    refused = 0
    for _ in range(400):
        bad = bytearray(good)
        at = rng.randrange(8, length)
        if rng.random() < 0.5:
            bad[at] ^= 1 << rng.randrange(8)
        else:
            at -= at % 8
            bad[at : at + 8] = struct.pack("<q", rng.choice([-2, -1, 0, 1, 8, 64, 1 << 20, 1 << 40, 2**63 - 1, -(2**63)]))
        array.copy_from(bytes(bad))
        try:
            found = la.table_of(array)
            assert found.num_rows >= 0 and found.schema is not None
        except la.TableError:
            refused += 1
    assert refused > 50
    for end in (8, 20, 40, 41, 100, 500, len(good) - 1):
        with pytest.raises(la.TableError):
            la.table_of(pool.array(good[:end]))


# ------------------------------------------------------------------------------------------------
# Others


def test_objects_of_polars_are_refused(client, pool):
    pl = pytest.importorskip("polars")
    with pytest.raises(la.TableError, match="cast"):
        la.publish(pool, "t", pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}))
    assert client.names() == []


def test_polars_reads_and_writes_in_place(client, pool):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"i": range(N), "f": [0.5] * N, "s": ["a string that is longer than twelve bytes"] * N,
                          "c": pl.Series(["a", "b"] * (N // 2), dtype=pl.Categorical)})
    la.publish(pool, "t", frame)
    there = client.lookup("t")
    found = pl.from_arrow(la.table_of(there))
    assert found.equals(frame)
    for name in ("i", "f"):
        assert lies_in(found[name].to_numpy(allow_copy=False).ctypes.data, there)
    texts = found.to_arrow(compat_level=pl.CompatLevel.newest())["s"].chunk(0).buffers()
    assert lies_in(texts[2].address, there)  # the characters; polars has made its own views of them, or not
    # a decimal is in place, too, whatever lies before it
    table = pa.table({"s": pa.array(["abc"] * 3 + [None] * (N - 3)), "d": flat()["decimal"].slice(0, N)})
    array = la.to_pool(pool, table)
    column = pl.from_arrow(la.table_of(array)).to_arrow(compat_level=pl.CompatLevel.newest())["d"]
    assert lies_in(column.chunk(0).buffers()[1].address, array)
    with pytest.raises(TypeError, match=r"collect\(\)"):
        la.publish(pool, "t", frame.lazy())
    with pytest.raises(TypeError, match=r"to_frame\(\)"):
        la.publish(pool, "t", frame["i"])
    client.unpublish("t")
    la.collect()


def test_duckdb_reads_in_place_and_its_relations_are_tables(client, pool):
    duckdb = pytest.importorskip("duckdb")
    la.publish(pool, "t", duckdb.sql("select range as i, 'x' || range as s from range(1000)"))
    prices = la.lookup(client, "t")
    assert duckdb.sql("select sum(i), max(s) from prices").fetchall() == [(499500, "x999")]
    del prices
    la.publish(pool, "big", pa.table({"x": pa.array(range(1 << 22))}))  # 32 MiB
    code = """if True:
        import re, sys, duckdb, pyarrow, libshare, libshare.arrow
        def anonymous():
            return int(re.search(r"^Anonymous:\\s+(\\d+)", open("/proc/self/smaps_rollup").read(), re.M)[1]) >> 10
        small = pyarrow.table({"x": range(100_000)})
        duckdb.sql("set threads=1"); duckdb.sql("select sum(x) from small").fetchall()
        with libshare.connect(sys.argv[1]) as client:
            big = libshare.arrow.lookup(client, "big")
            before = anonymous()
            assert duckdb.sql("select sum(x) from big").fetchall() == [((1 << 22) * ((1 << 22) - 1) // 2,)]
            print(anonymous() - before)
    """
    done = subprocess.run([sys.executable, "-c", code, client.address], stdout=subprocess.PIPE, text=True, check=True)
    assert int(done.stdout) < 24  # MiB: its own, not the table's
    for name in ("t", "big"):
        client.unpublish(name)
    la.collect()


def test_the_pool_comes_first(pool):
    table = pa.table({"a": [1]})
    for use in (lambda: la.publish("t", pool, table), lambda: la.to_pool(table, pool)):
        with pytest.raises(TypeError, match="a Pool is needed here.* a (str|Table) is none"):
            use()


def test_pandas_reads_in_place_and_its_frames_are_tables(client, pool):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"i": range(N), "f": 0.5, "s": ["x"] * N}, index=pd.Index(range(5, N + 5), name="at"))
    la.publish(pool, "t", frame)
    there = client.lookup("t")
    found = la.table_of(there).to_pandas()
    pd.testing.assert_frame_equal(found, frame)
    in_place = la.table_of(there).to_pandas(types_mapper=pd.ArrowDtype)
    for name in ("i", "f"):
        assert lies_in(pa.chunked_array(in_place[name].array.__arrow_array__()).chunk(0).buffers()[1].address, there)
    with pytest.raises(TypeError, match=r"to_frame\(\)"):
        la.publish(pool, "t", frame["i"])
    for use in (pool.array, lambda x: pool.publish("t", x)):
        for table in (frame, frame["i"]):
            with pytest.raises(TypeError, match=r"libshare\.arrow.*to_numpy\(\)"):
                use(table)
    with pytest.raises(TypeError, match=r"not <class 'pandas.*libshare\.arrow\.to_pool\(\)"), pool.producer("c") as tx:
        tx.send(frame)
    for wrong, words in ((pd.DataFrame({"mixed": [1, "x", object()]}), "mixed"),
                         (pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1])}), "Sparse pandas data"),
                         (pd.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names")):
        with pytest.raises(la.TableError, match=f"cannot make a table of this 'DataFrame': .*{words}"):
            la.publish(pool, "t", wrong)
    rows = pd.DataFrame(index=range(5))
    la.publish(pool, "t", rows)
    pd.testing.assert_frame_equal(la.lookup(client, "t").to_pandas(), rows)
    client.unpublish("t")
    la.collect()


def test_what_a_version_of_this_module_wrote_is_read_by_all_later_ones():
    """The bytes of version 1, as they were."""
    text = re.sub(r"\s", "", WRITTEN)
    with libshare.connect("embedded") as client, client.pool("old", kind="host", limit="1MiB") as pool:
        found = la.table_of(pool.array(bytes.fromhex(text)))
        assert found.to_pydict() == {"i": [1, None, 3], "s": ["a", "", "bc"], "d": ["x", "x", "y"]}


WRITTEN = """
53684172726f773100010000000000002400000000000000c0010000000000000000000000000000fffffffff80000001000000000000a00
0c000600050008000a0000000001040004000000b4ffffff0400000003000000980000005c00000014000000100018000800060007000c00
10001400100000000000010514000000340000001c0000000400000000000000010000006400000008000800000004000800000004000000
98ffffff0000000120000000dcffffffd8ffffff000001051000000018000000040000000000000001000000730000000400040004000000
100014000800060007000c00000010001000000000000102100000001c0000000400000000000000010000006900000008000c0008000700
0800000000000001200000000000000001000000000000000300000000000000010000000000000002000000000000000000000000000000
010000000000000040000000000000000c000000000000000100000000000000030000000000000000000000000000000300000000000000
ffffffffffffffff000000000000000080000000000000001000000000000000c00000000000000003000000000000000100000000000000
030000000000000000000000000000000200000000000000ffffffffffffffff000000000000000000010000000000000c00000000000000
0000000000000000020000000000000000000000000000000300000000000000ffffffffffffffff00000000000000004001000000000000
0c00000000000000800100000000000002000000000000000000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000500000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000010000000000000003000000000000000000000000000000
0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000010000000100000003000000
0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000006162630000000000
0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
0000000000000000010000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000100000002000000000000000000000000000000000000000000000000000000000000000000000000000000
0000000000000000000000000000000078790000000000000000000000000000000000000000000000000000000000000000000000000000
000000000000000000000000000000000000000000000000
"""
