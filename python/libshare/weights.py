# SPDX-License-Identifier: MIT
"""Weights: the tensors of a model under one name, so that any number of processes has one copy.

A version of the weights is one buffer, or several where a pool's kind bounds the size of one. The
last one ends with what is in them: a JSON text, its length in 8 bytes, and 8 bytes that say that it
is there. So a version is replaced as a whole, by the publication of that one buffer, and whoever has
an older version keeps it until it lets go of it.

This module needs no framework; libshare.torch has the same for modules of torch.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping
from operator import index
from typing import Any

from ._client import Name
from ._core import Array, Client, Pool
from ._dtype import code
from ._errors import BusyError, DeniedError, Error, ExistsError, NotFoundError
from ._find import need_pool

_MAGIC = b"ShWghts1"
_TAIL = struct.Struct("<Q8s")
_ALIGNMENT = 256  # bytes; what CUDA's own allocators give at least
_NAME_MAX = 255  # bytes; SHARE_NAME_MAX
_PART_MAX = {"mempool": 4 << 30}  # beyond, the driver crashes who imports it
_PUBLISHER = "~"  # beside the parts, as long as nothing leads to them yet; after all numbers

#: What safetensors calls its dtypes.
_SAFETENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16",
    "U32": "uint32", "I32": "int32", "U64": "uint64", "I64": "int64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}


class WeightsError(Error, ValueError):
    """What was found is no weights, or does not fit to what it is loaded into."""


#: What comes of reading JSON that others wrote as if it was what it should be.
_SENSELESS = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


# ------------------------------------------------------------------------------------------------
# What is published


class Source:
    """A tensor to be published: what it is, and how its bytes get into an Array of them."""

    def __init__(self, dtype: str, shape: tuple[int, ...], key: Any = None):
        self.dtype, self.shape = dtype, shape
        self.nbytes = _bytes(dtype, shape)
        #: Two with the same key, which is not None, are one tensor under two names.
        self.key = key

    def copy_into(self, to: Array) -> None:
        """to: a contiguous Array of the source's dtype and shape."""
        raise NotImplementedError


class _OfBuffer(Source):
    """What has the buffer protocol, as NumPy's arrays have."""

    def __init__(self, content: Any):
        super().__init__(_name_of(content.dtype), tuple(content.shape))
        self._content = content

    def copy_into(self, to: Array) -> None:
        to.copy_from(self._content)


class _OfFile(Source):
    """A stretch of a file that is mapped."""

    def __init__(self, file: mmap.mmap, offset: int, nbytes: int, dtype: str, shape: tuple[int, ...]):
        super().__init__(dtype, shape)
        if nbytes != self.nbytes:
            raise WeightsError(f"{nbytes} bytes are no {dtype} of shape {shape}")
        self._file, self._offset = file, offset

    def copy_into(self, to: Array) -> None:
        to.copy_from(memoryview(self._file)[self._offset : self._offset + self.nbytes])


def _name_of(dtype: Any) -> str:
    number = code(dtype)
    name = next((n for n in _NAMES if code(n) == number), None)
    if name is None:
        raise ValueError(f"weights cannot be of dtype {dtype!r}")
    return name


_NAMES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "uint16", "int32",
          "uint32", "int64", "uint64", "bool", "complex64", "complex128", "float8_e4m3fn",
          "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def read_safetensors(path: str | os.PathLike[str]) -> dict[str, Source]:
    """The tensors of a .safetensors file, whose bytes are read when they are copied."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > size - 8:
            raise WeightsError(f"{os.fspath(path)!r} is no .safetensors file: its header is cut off")
        try:
            header = json.loads(file.read(length))
            start = 8 + length
            content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            found: dict[str, Source] = {}
            for name, entry in header.items():
                if name == "__metadata__":
                    continue
                begin, end = map(index, entry["data_offsets"])
                if not 0 <= begin <= end <= size - start:
                    raise WeightsError(f"{os.fspath(path)!r}: {name!r} lies outside of the file")
                found[name] = _OfFile(content, start + begin, end - begin,
                                      _SAFETENSORS[entry["dtype"]], tuple(map(index, entry["shape"])))
        except WeightsError:
            raise
        except _SENSELESS as e:
            raise WeightsError(f"{os.fspath(path)!r} is no .safetensors file: {e!r}") from e
    return found


def sources_of(weights: Any) -> dict[str, Source]:
    """weights: one or several .safetensors files, or a mapping of names to NumPy's arrays, or to
    what is a Source already."""
    if isinstance(weights, (str, os.PathLike)):
        return read_safetensors(weights)
    if isinstance(weights, Mapping):
        return {name: one if isinstance(one, Source) else _OfBuffer(one)
                for name, one in weights.items()}
    if isinstance(weights, Iterable):
        found: dict[str, Source] = {}
        for path in weights:
            more = read_safetensors(path)
            twice = found.keys() & more.keys()
            if twice:
                raise WeightsError(f"{min(twice)!r} is in several of the files")
            found |= more
        return found
    raise TypeError(f"weights are files or a mapping of tensors, not {type(weights).__name__}")


# ------------------------------------------------------------------------------------------------
# Publication


def _lay_out(sources: Mapping[str, Source], most: int | None) -> tuple[list[list], list[int]]:
    """Rows of name, dtype, shape, part, offset; and the bytes of each part. Tensors that are one are
    laid out once."""
    rows: list[list] = []
    parts = [0]
    placed: dict[Any, tuple[int, int]] = {}
    for name, source in sources.items():
        place = placed.get(source.key) if source.key is not None else None
        if place is None:
            offset = -(-parts[-1] // _ALIGNMENT) * _ALIGNMENT
            if most is not None and parts[-1] and offset + source.nbytes > most:
                parts.append(0)
                offset = 0
            place = (len(parts) - 1, offset)
            parts[-1] = offset + source.nbytes
            if source.key is not None:
                placed[source.key] = place
        rows.append([name, source.dtype, list(source.shape), *place])
    return rows, parts


class Publication:
    """Weights that lie in a pool, and to which a name may lead: their memory goes with this, until it does."""

    def __init__(self, pool: Pool, name: str, weights: Any, *, metadata: Any = None):
        """Copies the weights. name, weights, metadata: as for publish_weights()."""
        need_pool(pool)
        sources = sources_of(weights)
        self.client, self.name = pool.client, name
        most = _PART_MAX.get(pool.kind)
        rows, sizes = _lay_out(sources, None if most is None else most - (1 << 20))
        self._prefix = f"{name}.parts/{secrets.token_hex(8)}/"
        longest = len(f"{self._prefix}{len(sizes)}".encode())
        if len(sizes) > 1 and longest > _NAME_MAX:
            raise WeightsError(f"{name!r} is too long a name: {len(sizes)} buffers of these weights have names that begin with "
                               f"it, and one of {len(name.encode()) - longest + _NAME_MAX} bytes leaves room for that")
        self._manifest = {"tensors": rows, "parts": len(sizes), "prefix": self._prefix, "metadata": metadata}
        text = json.dumps(self._manifest, separators=(",", ":")).encode()
        tail = text + _TAIL.pack(len(text), _MAGIC)
        arrays = [pool.alloc(size + (len(tail) if i == len(sizes) - 1 else 0), alignment=0)
                  for i, size in enumerate(sizes)]
        done = set()
        for (tensor, dtype, shape, part, offset), source in zip(rows, sources.values()):
            if (part, offset) not in done and source.nbytes:
                done.add((part, offset))
                to = arrays[part][offset : offset + source.nbytes].view(dtype).reshape(*shape)
                source.copy_into(to)
        last = arrays[-1]
        last[last.nbytes - len(tail) :].copy_from(tail)
        self._arrays = arrays

    def attach(self) -> Weights:
        """The weights as others will have them, read-only. Until they are published, of version 0."""
        parts = [self.client.import_(array.export(mode="r"), mode="r") for array in self._arrays]
        metadata = json.loads(json.dumps(self._manifest["metadata"]))  # as it comes back
        return Weights(_tensors_of(self._manifest, parts), self.client, self.name, 0, metadata)

    def publish(self, *, persistent: bool = False) -> int:
        """Makes the name lead to them in place of the version before, and returns the version. An error has changed nothing,
        unless the name leads to them by then: ^C, or the loss of the connection, may come as the broker answers."""
        *parts, last = self._arrays
        made: list[str] = []
        try:
            if parts:
                # before the parts, and listed after them: who sees parts without it sees no publisher under way
                made.append(f"{self._prefix}{_PUBLISHER}")
                last.publish(made[0], mode="r")
            for i, array in enumerate(parts):
                made.append(f"{self._prefix}{i}")
                array.publish(made[-1], persistent=persistent, mode="r")
            version, old = self._replace(last, persistent)
        except BaseException:
            self._unpublish(made[:1] if self._is_published(last) else made)
            raise
        # whoever found the old version and not yet all of its parts looks again
        self._unpublish(made[:1] + old)
        return version

    def _replace(self, last: Array, persistent: bool) -> tuple[int, list[str]]:
        """The version, and the names of parts that nobody needs any more: those of what is replaced, and of publishers
        that did not get so far. They are listed after the version that is replaced, so that no other comes in between."""
        while True:
            version, old = self._before()
            try:
                if version:
                    return last.publish(self.name, persistent=persistent, mode="r", expected_version=version), old
                return last.publish(self.name, persistent=persistent, mode="r", exclusive=True), old
            except BusyError:
                continue
            except ExistsError:
                if self._before()[0]:
                    continue
                # it leads to where this user may not look, so that no weights of ours are there
                return last.publish(self.name, persistent=persistent, mode="r"), old

    def _before(self) -> tuple[int, list[str]]:
        """The version that the name leads to (0: it leads nowhere), and the names of the parts of others that nobody needs
        once it leads elsewhere."""
        version, buffer, all_parts = 0, None, f"{self.name}.parts/"
        publishers: dict[str, int] = {}
        parts: list[tuple[str, str]] = []
        for n in self._names():  # in byte order: the name, its parts, and after those of each their publisher's
            if n.name == self.name:
                version, buffer = n.version, n.buffer
            elif n.name.startswith(all_parts):
                prefix = n.name[: n.name.rfind("/") + 1]
                if n.name == f"{prefix}{_PUBLISHER}":
                    publishers[prefix] = n.buffer
                elif prefix != self._prefix:
                    parts.append((prefix, n.name))
        # a publisher whose buffer the name leads to has got through
        return version, [name for prefix, name in parts if publishers.get(prefix, buffer) == buffer]

    def _is_published(self, last: Array) -> bool:
        return any(n.name == self.name and n.buffer == last.id for n in self._names())

    def _names(self) -> list[Name]:
        """The name and those that start with it. A name that is too long to be one has none."""
        return self.client.names(self.name) if len(self.name.encode()) <= _NAME_MAX else []

    def _unpublish(self, names: Iterable[str]) -> None:
        for name in names:
            try:
                self.client.unpublish(name)
            except (NotFoundError, DeniedError):
                pass


def publish_weights(
    pool: Pool, name: str, weights: Any, *, persistent: bool = False, metadata: Any = None
) -> int:
    """Copies weights into the pool, once, and makes name lead to them in place of the version before.
    Returns the version.

    weights: see sources_of(). metadata: anything JSON can say, for those who attach them. The pool
    has to have room for the old and the new version. Who attaches gets one version or the other,
    never a mixture, however many publish at a time: the last of them has the name. It goes when this
    process ends, unless persistent.
    """
    return Publication(pool, name, weights, metadata=metadata).publish(persistent=persistent)


class Weights(Mapping[str, Array]):
    """One version of weights that were published: a mapping of names to read-only Arrays. They stay
    as they are, whatever is published later, as long as this or any of them is there.
    """

    def __init__(self, arrays: dict[str, Array], client: Client, name: str, version: int, metadata: Any):
        self._arrays, self._client = arrays, client
        self.name, self.version, self.metadata = name, version, metadata

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"<libshare.Weights {self.name!r} version {self.version}: {len(self)} tensors>"

    def is_current(self) -> bool:
        """Whether no other version was published since. One request."""
        return any(n.name == self.name and n.version == self.version
                   for n in self._client.names(self.name))


def _manifest_of(last: Array, name: str) -> dict[str, Any]:
    size = last.nbytes
    if size >= _TAIL.size:
        length, magic = _TAIL.unpack(last[size - _TAIL.size :].tobytes())
        if magic == _MAGIC and length <= size - _TAIL.size:
            try:
                found = json.loads(last[size - _TAIL.size - length : size - _TAIL.size].tobytes())
                if isinstance(found, dict):
                    return found
            except (ValueError, RecursionError):
                pass
    raise WeightsError(f"{name!r} leads to something else than weights or a dict: Client.lookup() has it as an Array")


def _no_sense(name: str, e: Exception) -> WeightsError:
    return WeightsError(f"{name!r} leads to weights that make no sense: {e!r}")


def attach_weights(client: Client, name: str, *, timeout: float | None = 0, **stream: Any) -> Weights:
    """The weights that name leads to, read-only and in place: nothing is copied, and this process
    has no memory of its own for them. timeout: how long to wait for somebody to publish them, in
    seconds. stream: as for Client.lookup().

    NotFoundError, TimedOutError; WeightsError: the name leads to something else.
    """
    while True:
        last = client.lookup(name, mode="r", timeout=timeout, **stream)
        if last.dtype != "uint8" or last.ndim != 1:
            raise WeightsError(f"{name!r} leads to one tensor, not to weights or a dict: Client.lookup() has it")
        manifest = _manifest_of(last, name)
        try:
            parts = [client.lookup(f"{manifest['prefix']}{i}", mode="r", timeout=0, **stream)
                     for i in range(manifest["parts"] - 1)]
        except NotFoundError:
            # replaced while we looked; or its publisher is gone, and the next turn says so
            if any(n.name == name and n.version == last.version for n in client.names(name)):
                raise
            continue
        except _SENSELESS as e:
            raise _no_sense(name, e) from e
        parts.append(last)
        try:
            arrays = _tensors_of(manifest, parts)
        except _SENSELESS as e:
            raise _no_sense(name, e) from e
        return Weights(arrays, client, name, last.version, manifest.get("metadata"))


def _tensors_of(manifest: dict[str, Any], parts: list[Array]) -> dict[str, Array]:
    return {
        tensor: parts[part][offset : offset + _bytes(dtype, shape)].view(dtype).reshape(shape)
        for tensor, dtype, shape, part, offset in manifest["tensors"]
    }


def _bytes(dtype: str, shape: Any) -> int:
    return math.prod(shape) * ((code(dtype) & 0xFF) // 8)
