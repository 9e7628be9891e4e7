# SPDX-License-Identifier: MIT
"""Tables of Arrow in the broker's memory: pyarrow, polars, DuckDB and pandas, without a copy.

    libshare.arrow.publish(pool, "prices", table)      # of any of them: copied once, into the pool
    table = libshare.arrow.lookup(client, "prices")    # a pyarrow.Table in place, in any process
    polars.from_arrow(table); duckdb.sql("select * from table"); table.to_pandas(types_mapper=pandas.ArrowDtype)

    tx.send(libshare.arrow.to_pool(pool, table))       # through a channel
    table = libshare.arrow.table_of(rx.recv().array)

What a table consists of (its columns' buffers) is the pool's memory, for reading only, and lives as
long as anything that was made of it without a copy.

In the pool, a table is a header, the schema as Arrow's IPC writes it, and for each column where its
buffers lie, each at a multiple of 64 bytes. Columns of columns (lists, structs, maps, unions, runs)
are a stream of Arrow's IPC behind that, whose buffers lie at multiples of 8. A table without columns is
such a stream, which has the number of its rows. What others put into a pool as a stream or a file of
Arrow's IPC is read as well.
"""

from __future__ import annotations

import functools
import struct
import threading
import weakref
from array import array as numbers_array
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from ._core import Array, Client, Pool
from ._errors import Error, OutOfMemoryError
from ._find import need_pool

__all__ = ["TableError", "collect", "lookup", "publish", "table_of", "to_pool"]

_MAGIC = b"ShArrow1"
# then how long these are: the schema, the numbers that say where buffers lie, the columns' buffers,
# and the stream of the other columns
_HEAD = struct.Struct("<8sQQQQ")
_ALIGNMENT = 64
_IN_STREAM = -1
_NO_BUFFER = -1


class TableError(Error, ValueError):
    """What was found is no table, or what was given cannot be made one."""


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


# ------------------------------------------------------------------------------------------------
# Writing


def _as_table(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, pa.RecordBatchReader):
        return source.read_all()
    if hasattr(source, "collect") and hasattr(source, "collect_schema"):
        raise TypeError("a lazy frame has no rows yet: collect() it")
    kinds = getattr(source, "dtypes", ())  # of a Series, only one
    if isinstance(kinds, list) and any(str(kind) == "Object" for kind in kinds):  # polars would hand over addresses
        raise TableError("a column of Object is Python's objects, which other processes have not: cast() it")
    try:
        if isinstance(source, (list, tuple)):  # pyarrow would ask for the columns' names
            raise TypeError
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowException) as e:
        if hasattr(source, "to_frame"):
            raise TypeError("a Series is one column, and a table is needed: to_frame() makes one") from e
        if isinstance(source, dict) or hasattr(source, "columns"):
            raise TableError(f"pyarrow cannot make a table of this {type(source).__name__!r}: {e}") from e
        raise TypeError(f"a table of pyarrow, polars, DuckDB or pandas is needed, or what has "
                        f"__arrow_c_stream__(), not {type(source).__name__!r}") from e


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _is_flat(kind: pa.DataType) -> bool:
    """Whether its arrays are buffers, without other arrays but a dictionary."""
    kind = _storage(kind)
    if pa.types.is_dictionary(kind):
        return _is_flat(kind.value_type)
    return kind.num_fields == 0 and not pa.types.is_nested(kind)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _offset_type(kind: pa.DataType) -> pa.DataType | None:
    """What the offsets of strings of that type are; None: the type has none."""
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_string(kind) or pa.types.is_binary(kind) else None


def _is_kept(kind: pa.DataType, found: pa.DataType) -> bool:
    """Whether a column of that type is there again when found is what its schema says in Arrow's IPC. An
    extension type that this process has not registered is found as its storage, and its name as
    metadata of the field."""
    if kind == found:
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return not isinstance(found, pa.BaseExtensionType) and _is_kept(kind.storage_type, found)
    count = kind.num_fields
    return bool(count > 0 and kind.id == found.id and count == found.num_fields
                and all(_is_kept(kind.field(i).type, found.field(i).type) for i in range(count)))


def _schema_of(table: pa.Table) -> pa.Buffer:
    """Its schema as Arrow's IPC writes it, in which a dictionary has one type less than it may have."""
    schema = table.schema.serialize()
    try:
        kept = pa.ipc.read_schema(schema)
    except (TypeError, ValueError, pa.ArrowException) as e:
        raise TableError(f"a column has a type that Arrow's IPC does not keep: {e}") from e
    for field, found in zip(table.schema, kept):
        if not _is_kept(field.type, found.type):
            raise TableError(f"a column has a type that Arrow's IPC does not keep: {field.name!r} is {field.type}, and "
                             f"would be {found.type}")
    return schema


def _bits(buffer: pa.Buffer, start: int, count: int) -> Any:
    """That many bits of a bitmap from that one on, as bytes that begin with it."""
    first, last = start // 8, (start + count + 7) // 8
    part = buffer.slice(first, last - first)
    if start % 8 == 0:
        return part
    return (int.from_bytes(part, "little") >> start % 8).to_bytes(last - first, "little")


def _offsets(buffer: pa.Buffer | None, width: pa.DataType, start: int, count: int) -> tuple[Any, int, int]:
    """The offsets of that many strings from that one on, so that they begin with 0; and the first and
    the last as they were."""
    size = width.bit_width // 8
    if count == 0 or buffer is None:
        return bytes(size * (count + 1)), 0, 0
    part = buffer.slice(start * size, (count + 1) * size)
    found = pa.Array.from_buffers(width, count + 1, [None, part])
    first, last = found[0].as_py(), found[count].as_py()
    if first != 0:
        import pyarrow.compute

        part = pyarrow.compute.subtract(found, pa.scalar(first, width)).buffers()[1].slice(0, (count + 1) * size)
    return part, first, last


def _buffers(a: pa.Array) -> list[Any]:
    """The buffers that a flat array is made of when it begins at its own first element."""
    kind, start, count = a.type, a.offset, len(a)
    valid, *rest = a.buffers() or [None]
    if pa.types.is_null(kind):
        return [None]
    found = [_bits(valid, start, count) if valid is not None and a.null_count else None]
    if pa.types.is_boolean(kind):
        return [*found, _bits(rest[0], start, count) if count else b""]
    if _is_view(kind):
        return [*found, rest[0].slice(start * 16, count * 16) if count else b"", *rest[1:]]
    offset = _offset_type(kind)
    if offset is not None:
        offsets, first, last = _offsets(rest[0], offset, start, count)
        return [*found, offsets, rest[1].slice(first, last - first) if last > first else b""]
    width = kind.bit_width // 8
    return [*found, rest[0].slice(start * width, count * width) if count and width else b""]


class _Plan:
    """What is to be written, and where: known before there is memory for it."""

    def __init__(self, table: pa.Table):
        self._schema = _schema_of(table)
        self._parts: list[tuple[int, Any]] = []  # at which place which bytes, in order
        self._end = 0
        self._numbers = numbers_array("q")
        self._placed: dict[tuple[int, int], int] = {}  # a buffer that several arrays have is there once
        self._keep: list[pa.Array] = []  # as long as their addresses are compared
        self._dictionaries: dict[Any, int] = {}
        others: list[int] = []
        for i, column in enumerate(table.columns):
            if _is_flat(column.type):
                self._numbers.append(column.num_chunks)
                for chunk in column.chunks:
                    self._add(chunk)
            else:
                self._numbers.append(_IN_STREAM)
                others.append(i)
        self._others = (pa.Table.from_arrays([table.column(i) for i in others],
                                             schema=pa.schema([table.schema.field(i) for i in others]))
                        if others else None)
        stream = 0
        if self._others is not None:
            counter = pa.MockOutputStream()
            _write_stream(counter, self._others)
            stream = counter.size()
        self._head = _HEAD.pack(_MAGIC, self._schema.size, len(self._numbers), _aligned(self._end), stream)
        self._start = _aligned(_HEAD.size + _aligned(self._schema.size) + 8 * len(self._numbers))
        self.size = self._start + _aligned(self._end) + stream

    def _place(self, content: Any) -> int:
        size = content.size if isinstance(content, pa.Buffer) else len(content)
        if isinstance(content, pa.Buffer):
            if not content.is_cpu:
                raise TableError("this table lies on a GPU, and tables are shared in host memory: copy it there")
            known = self._placed.get((content.address, size))
            if known is not None and size:
                return known
            self._placed[content.address, size] = self._end
        at = self._end
        if size:
            self._parts.append((at, content))
            self._end = _aligned(at + size)
        return at

    def _add(self, a: pa.Array) -> None:
        if isinstance(a.type, pa.BaseExtensionType):
            a = a.storage
        is_dictionary = pa.types.is_dictionary(a.type)
        buffers = _buffers(a.indices if is_dictionary else a)
        self._numbers.extend((len(a), a.null_count, len(buffers)))
        for buffer in buffers:
            if buffer is None:
                self._numbers.extend((_NO_BUFFER, 0))
            else:
                self._numbers.append(self._place(buffer))
                self._numbers.append(buffer.size if isinstance(buffer, pa.Buffer) else len(buffer))
        if is_dictionary:
            values = a.dictionary
            addresses = tuple(b.address if b is not None else None for b in values.buffers())
            key = str(values.type), len(values), values.offset, addresses
            known = self._dictionaries.get(key)
            self._numbers.append(len(self._dictionaries) if known is None else known)
            if known is None:
                self._dictionaries[key] = len(self._dictionaries)
                self._keep.append(values)
                self._add(values)

    def write(self, to: Array) -> None:
        """to: at least as large as size."""
        memory = memoryview(to)
        with pa.FixedSizeBufferWriter(pa.py_buffer(memory)) as writer:
            writer.set_memcopy_threads(min(4, pa.cpu_count()))
            place = 0

            def put(at: int, content: Any) -> None:
                nonlocal place
                writer.write(bytes(at - place))
                writer.write(content)
                place = at + (content.size if isinstance(content, pa.Buffer) else len(content))

            put(0, self._head)
            put(_HEAD.size, self._schema)
            put(_HEAD.size + _aligned(self._schema.size), self._numbers.tobytes())
            for at, content in self._parts:
                put(self._start + at, content)
        if self._others is not None:
            start = self._start + _aligned(self._end)
            with pa.FixedSizeBufferWriter(pa.py_buffer(memory[start : self.size])) as writer:
                _write_stream(writer, self._others)


class _Stream:
    """The same for a table that is compressed or has no columns: it is written as a stream, whose size is
    known then."""

    def __init__(self, table: pa.Table, compression: str | None):
        _schema_of(table)
        with pa.BufferOutputStream() as sink:
            _write_stream(sink, table, compression)
            self._content = sink.getvalue()
        self.size = self._content.size

    def write(self, to: Array) -> None:
        to[: self.size].copy_from(memoryview(self._content))


def _write_stream(sink: Any, table: pa.Table, compression: str | None = None) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression, unify_dictionaries=True)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _need_host_pool(pool: Any) -> None:
    need_pool(pool)
    if not pool._on_host:
        raise TableError("tables are shared in host memory, and this pool is of a GPU")


def _planned(source: Any, compression: str | None) -> Any:
    if compression not in (None, "zstd", "lz4"):
        raise TableError(f'compression is "zstd", "lz4" or None, not {compression!r}')
    table = _as_table(source)
    return _Plan(table) if compression is None and table.num_columns else _Stream(table, compression)


def to_pool(pool: Pool, table: Any, *, compression: str | None = None) -> Array:
    """A copy of the table in the pool, as an Array of bytes that may be sent, published or pickled as
    any other; table_of() is the table in it.

    table: of pyarrow, polars, DuckDB or pandas, or whatever has ``__arrow_c_stream__()``.
    compression: "zstd" or "lz4": takes less of the pool, and costs everything else: the table is
    packed before its size is known, so it is copied once more, and every reader unpacks all of it
    into memory of its own.

    TypeError: that is no table. TableError: its values have no type in Arrow, or one that Arrow's IPC does
    not keep (a dictionary of dictionaries, or of an extension type), or lie on a GPU; or there is no
    such compression. OutOfMemoryError.
    """
    _need_host_pool(pool)
    plan = _planned(table, compression)
    made = pool.alloc(plan.size)
    plan.write(made)
    return made


# ------------------------------------------------------------------------------------------------
# Reading


def _least(kind: pa.DataType, length: int) -> list[int]:
    """How large each buffer of a flat array is at least. ValueError: this module writes no such type."""
    bits = -(-length // 8)
    if pa.types.is_null(kind):
        return [0]
    if pa.types.is_dictionary(kind):
        kind = kind.index_type
    if pa.types.is_boolean(kind):
        return [bits, bits]
    if _is_view(kind):
        return [bits, 16 * length]
    offset = _offset_type(kind)
    if offset is not None:
        return [bits, offset.bit_width // 8 * (length + 1), 0]
    return [bits, kind.bit_width // 8 * length]


def _check(kind: pa.DataType, length: int, nulls: int, buffers: list[pa.Buffer | None]) -> None:
    """Arrow relies on this, without a look, for some types: others could end this process otherwise."""
    least = _least(kind, length)
    if len(buffers) != len(least) and not (_is_view(kind) and len(buffers) > len(least)):
        raise ValueError(f"{kind} has another number of buffers")
    if pa.types.is_null(kind):
        if nulls != length or buffers[0] is not None:
            raise ValueError("what is null has values")
        return
    if (nulls and buffers[0] is None) or any(buffer is None for buffer in buffers[1:]):
        raise ValueError("a buffer is missing")
    if any(buffer is not None and buffer.size < size for buffer, size in zip(buffers, least)):
        raise ValueError("a buffer is too small")


class _Reader:
    def __init__(self, whole: pa.Buffer):
        _, schema, count, size, stream = _HEAD.unpack_from(whole)
        start = _aligned(_HEAD.size + _aligned(schema) + 8 * count)
        if start + size + stream > whole.size:
            raise ValueError("it is longer than its memory")
        at = _HEAD.size + _aligned(schema)
        self._schema = pa.ipc.read_schema(whole.slice(_HEAD.size, schema))
        self._numbers: Iterator[int] = iter(memoryview(whole.slice(at, 8 * count)).cast("q").tolist())
        self._data = whole.slice(start, size)
        self._dictionaries: list[pa.Array] = []
        self._others: Iterator[Any] = iter(())
        if stream:
            with pa.ipc.open_stream(whole.slice(start + size, stream)) as reader:
                others = reader.read_all()
            others.validate()
            self._others = iter(others.columns)

    def _buffer(self) -> pa.Buffer | None:
        at, size = next(self._numbers), next(self._numbers)
        if at == _NO_BUFFER:
            return None
        if at < 0 or size < 0 or at + size > self._data.size or at % _ALIGNMENT:
            raise ValueError("a buffer lies elsewhere")
        return self._data.slice(at, size)

    def _array(self, kind: pa.DataType) -> pa.Array:
        if isinstance(kind, pa.BaseExtensionType):
            return pa.ExtensionArray.from_storage(kind, self._array(kind.storage_type))
        length, nulls, count = next(self._numbers), next(self._numbers), next(self._numbers)
        if not 0 <= nulls <= length:
            raise ValueError("its lengths make no sense")
        buffers = [self._buffer() for _ in range(count)]
        _check(kind, length, nulls, buffers)
        if not pa.types.is_dictionary(kind):
            return pa.Array.from_buffers(kind, length, buffers, nulls)
        number = next(self._numbers)
        if number == len(self._dictionaries):
            # its own dictionaries have larger numbers
            self._dictionaries.append(None)
            self._dictionaries[number] = self._array(kind.value_type)
        values = self._dictionaries[number]
        if values is None or values.type != kind.value_type:
            raise ValueError("its dictionaries make no sense")
        return pa.DictionaryArray.from_buffers(kind, length, buffers, values, nulls)

    def read(self) -> pa.Table:
        columns = []
        for field in self._schema:
            chunks = next(self._numbers)
            if chunks == _IN_STREAM:
                column = next(self._others)
                if column.type != field.type:
                    raise ValueError("its columns are not those of its schema")
            elif _is_flat(field.type):
                arrays = [self._array(field.type) for _ in range(chunks)]
                if sum(map(len, arrays)) >= 1 << 63:
                    raise ValueError("its lengths make no sense")
                column = pa.chunked_array(arrays, field.type)
            else:
                raise ValueError("its columns are not those of its schema")
            columns.append(column)
        # which checks lengths and sizes, and reads no values
        return pa.Table.from_arrays(columns, schema=self._schema)


def table_of(array: Array) -> pa.Table:
    """The table in that Array: the same memory, which the table keeps, for reading only. Of a table that
    was compressed, and of nothing else, the columns are a copy.

    What is checked is that buffers are as large as they have to be. What the values are, such as the
    offsets of strings, is checked by ``table.validate(full=True)``, which reads all of them; use it for
    tables of a process that you do not trust.

    TableError: there is no table.
    """
    if not array.on_host:
        raise TableError("tables are shared in host memory, and this Array is of a GPU")
    if not array.contiguous:
        raise TableError("a table is bytes one after the other, and this Array is not")
    whole = pa.py_buffer(memoryview(array).toreadonly().cast("B") if array.nbytes else b"")
    first = bytes(whole.slice(0, min(8, whole.size)))
    try:
        if first == _MAGIC:
            return _Reader(whole).read()
        for begins, opened in ((b"\xff\xff\xff\xff", pa.ipc.open_stream), (b"ARROW1", pa.ipc.open_file)):
            if first.startswith(begins):
                with opened(whole) as stream:
                    table = stream.read_all()
                table.validate()
                return table
    except (ValueError, TypeError, KeyError, IndexError, StopIteration, OverflowError, NotImplementedError,
            OSError, MemoryError, struct.error, pa.ArrowException) as e:
        raise TableError(f"the table is damaged, or of another version: {e}") from e
    if first.startswith(_MAGIC[:-1]):
        raise TableError("this table is of a newer version of libshare: upgrade this one")
    raise TableError("this is no table: publish it with libshare.arrow, or as a stream of Arrow's IPC")


# ------------------------------------------------------------------------------------------------
# Names


# Tables that this process has published, to be written again when no name leads to them and nobody
# has them: of memory that the system has just given, each page would be cleared and mapped anew.
_published: weakref.WeakKeyDictionary[Pool, dict[str, list[Array]]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _closing(kind: Any, of: Callable[[Any, Pool], bool]) -> None:
    """What is kept of a pool would keep its connection open: so it goes when the pool or its client is
    closed."""
    close = kind.close

    @functools.wraps(close)
    def close_and_forget(self: Any) -> None:
        with _lock:
            kept = [_published.pop(pool) for pool in list(_published) if of(self, pool)]
        close(self)
        del kept

    kind.close = close_and_forget


_closing(Pool, lambda pool, other: pool is other)
_closing(Client, lambda client, pool: pool.client is client)


def collect() -> int:
    """Lets go of the memory of tables that this process has published and that are neither published
    nor in use any more, which publish() keeps for the next version. Returns how many it still has."""
    with _lock:
        kept = 0
        for by_name in _published.values():
            for name in list(by_name):
                by_name[name] = [a for a in by_name[name] if _is_free(a) is False]
                kept += len(by_name[name])
                if not by_name[name]:
                    del by_name[name]
        return kept


def _is_free(array: Array) -> bool | None:
    """Whether only this process has it; None: that cannot be known (the connection is lost, for example),
    so it may not be written to, and there is no use in keeping it."""
    try:
        return array.reclaim(timeout=0)
    except Error:
        return None


def _roomy(size: int) -> int:
    """A little more than size, so that the next version fits, too."""
    step = max(4096, (1 << size.bit_length()) >> 5)
    return -(-size // step) * step


def _memory_for(pool: Pool, name: str, size: int) -> Array:
    with _lock:
        kept = _published.get(pool, {}).get(name, [])
        for array in list(kept):
            if not size <= array.nbytes <= 2 * _roomy(size):
                continue
            is_free = _is_free(array)
            if is_free is not False:
                kept[:] = [a for a in kept if a is not array]  # == compares what is in them
            if is_free and not array.closed:
                return array
    try:
        return pool.alloc(_roomy(size))
    except OutOfMemoryError:
        collect()
        return pool.alloc(size)


def publish(pool: Pool, name: str, table: Any, *, compression: str | None = None, warm: bool = True,
            **options: Any) -> int:
    """Copies the table into the pool, once, and publishes it under the name. Returns the version.
    table, compression, and what is raised: see to_pool(). options: of Array.publish(); readers cannot
    write to the table unless mode="rw" says so.

    warm: the memory of the version before, which the name led to, is kept by this process, for the next
    one when nobody has it any more: writing to memory that was used before takes a fraction of the
    time. So of each name there are two versions in the pool. collect() lets go of them.
    """
    _need_host_pool(pool)
    mode = options.pop("mode", "r")
    warm = warm and mode == "r"
    plan = _planned(table, compression)
    made = _memory_for(pool, name, plan.size) if warm else pool.alloc(plan.size)
    plan.write(made)
    version = made.publish(name, mode=mode, **options)
    if warm:
        with _lock:
            kept = _published.setdefault(pool, {}).setdefault(name, [])
            kept.append(made)
            del kept[:-2]
    return version


def lookup(client: Client, name: str, **options: Any) -> pa.Table:
    """The table that the name leads to: Client.lookup() and table_of()."""
    return table_of(client.lookup(name, **options))
