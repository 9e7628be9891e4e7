# SPDX-License-Identifier: MIT
"""Connections and pools."""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _core
from ._core import Array, Client, HostStream, Pool
from ._dtype import AS_BYTES, code
from ._extend import extend
from ._find import framework_layout, need_plain, on_gpu, order_of
from ._size import name_of, nbytes

_PERSISTENT, _SAME_ADDRESS, _OPEN_OR_CREATE = 1, 2, 4
_REUSE = {"gate": 0, "clean": 1, "scrub": 2}
_HUGE_PAGES = {"system": 0, "advise": 1, "require": 2}
_HOST_FENCES, _NEVER_BLOCK = 1, 2

# What is open when the interpreter ends, to be closed in this order.
_open_members: weakref.WeakSet[Any] = weakref.WeakSet()
_open_streams: weakref.WeakSet[HostStream] = weakref.WeakSet()
_open_clients: weakref.WeakSet[Client] = weakref.WeakSet()
# By id(): the list of all is had in one step, whatever other threads open meanwhile.
_open_pools: weakref.WeakValueDictionary[int, Pool] = weakref.WeakValueDictionary()


def _close_all() -> None:
    for group in (_open_members, _open_streams, _open_clients):
        for thing in list(group):
            thing.close()


atexit.register(_close_all)


def open_pools(client: Client) -> list[Pool]:
    """The pools that this process has opened with the client and not closed."""
    pools = [ref() for ref in _open_pools.valuerefs()]
    return [pool for pool in pools if pool is not None and pool.client is client and not pool.closed]


def pool_for_now(client: Client, name: str) -> Pool:
    """A pool that is there, for one call: it is none that the program has open."""
    return Pool(client, name, True, None, None, 0, 0, 0, None, None, 0, 0, 0, 0, 0)


def connect(
    address: str | bytes | os.PathLike[str] | None = None,
    *,
    label: str | None = None,
    config: str | os.PathLike[str] | None = None,
    host_fences: bool = False,
    never_block: bool = False,
    timeout: float | None = None,
) -> Client:
    """Connects to the broker at address.

    None: what $SHARE_SOCKET says, else where a broker serves by default. "embedded": a private
    broker that ends with this connection; ``client.address`` tells others where it is. Otherwise
    the path of its socket.

    label: how ``sharectl clients`` calls this process. config: of an embedded broker, a file.
    host_fences, never_block: see SHARE_CONNECT_… in share.h. timeout: how many seconds a broker that
    is there may take to answer (None: without limit). One that is not there is not waited for.

    NoBrokerError: nobody listens there, said at once. TimedOutError: the broker hangs; the text says which process that is.
    DeniedError, QuotaExceededError, ProtocolError.
    """
    if timeout is not None and not 0 <= timeout < 1e9:
        raise ValueError(f"timeout is seconds from 0 on, not {timeout!r}")
    client = Client(
        os.fsdecode(address) if address is not None else None,
        label,
        os.fsdecode(config) if config is not None else None,
        (_HOST_FENCES if host_fences else 0) | (_NEVER_BLOCK if never_block else 0),
        -1 if timeout is None else math.ceil(timeout * 1000),
    )
    _open_clients.add(client)
    return client


class Name(NamedTuple):
    """A name, and what it leads to."""

    name: str
    version: int
    buffer: int  #: Array.id
    size: int  #: bytes
    pool: str
    uid: int  #: of who published it
    persistent: bool


def _numa_of(numa: int | str) -> int:
    """As share_pool_options has it."""
    if numa == "any":
        return 0
    if numa == "interleave":
        return (1 << 32) - 1
    if isinstance(numa, int) and 0 <= numa < 1024:
        return numa + 1
    raise ValueError(f"numa is 'any', 'interleave', or the number of a node, not {numa!r}")


@extend(Client)
class _Client:
    def __repr__(self):
        return f"<libshare.Client {'closed' if self.closed else self.address!r}>"

    def pool(
        self,
        name: str = "default",
        *,
        kind: str | None = None,
        limit: int | str | None = None,
        device: str | None = None,
        segment_size: int | str | None = None,
        alignment: int | str | None = None,
        release_threshold: int | str | None = None,
        access: Any = None,
        persistent: bool = False,
        same_address: bool = False,
        reuse: str = "gate",
        create: bool | None = None,
        prefault: int | str | None = None,
        huge_pages: str = "system",
        numa: int | str = "any",
    ) -> Pool:
        """Opens the pool. Makes it if there is none of that name.

        kind: "host", "vmm", "mempool", or "auto" for the first that works here of these three; "adopted":
        for memory that is there already (Pool.adopt()); "legacy": for consumers of CUDA's older handles;
        "pinned": of the host near a GPU, for both.
        limit: bytes of all its segments ("2GiB"). device: the UUID of a GPU. create: True: make it,
        or ExistsError; False: NotFoundError rather than make it. What the pool is like says who makes it:
        info() tells.
        Of host memory: prefault: so much is made ahead by the broker, and stays. huge_pages: "advise": where
        the kernel has them; "require": those that are set aside, or an error. numa: "interleave", or the
        number of a node. What came of these is in info()["reason"].
        access: who else may use a pool that is made, besides this user: a list as
        [{"user": "alice", "mode": "rw"}, {"group": "video", "mode": "ro"}]; "user": "*" is everybody, and the modes are
        "ro" (look up and receive), "rw" (allocate and send as well) and "manage" (destroy it as well). persistent: it
        stays when nobody has it open and no Array is left in it.
        segment_size: bytes that it takes from the system at a time; alignment: of every Array, a power of two from 512 (the
        default) to 2 MiB; release_threshold: bytes of empty segments that it keeps. reuse: when memory that was given back is
        handed out again: "gate": at once, behind the work of the same user that still runs on it; "clean": when that is done;
        "scrub": so too, and zeroed before another user gets it. same_address: it lies at the same address in every
        process, where something else may be in the way (BusyError).

        DeniedError: this user may not make pools. InvalidArgumentError names the option at fault. NoDeviceError,
        NotSupportedError, DeviceError, QuotaExceededError.
        """
        if reuse not in _REUSE:
            raise ValueError(f"reuse is 'gate', 'clean' or 'scrub', not {reuse!r}")
        if huge_pages not in _HUGE_PAGES:
            raise ValueError(f"huge_pages is 'system', 'advise' or 'require', not {huge_pages!r}")
        pool = Pool(
            self,
            name_of("pool", name),
            create is False,
            kind,
            device,
            nbytes(limit),
            nbytes(segment_size),
            nbytes(alignment),
            None if release_threshold is None else nbytes(release_threshold),
            None if access is None else access if isinstance(access, str) else json.dumps(access),
            (_PERSISTENT if persistent else 0)
            | (_SAME_ADDRESS if same_address else 0)
            | (_OPEN_OR_CREATE if create is None else 0),
            _REUSE[reuse],
            nbytes(prefault),
            _HUGE_PAGES[huge_pages],
            _numa_of(numa),
        )
        _open_pools[id(pool)] = pool
        return pool

    def lookup_dict(self, name: str, *, timeout: float | None = None) -> dict[str, Array]:
        """What Pool.publish() has published of a dict: a dict of Arrays of one version, read-only and in
        place. timeout: seconds until somebody has published it (0: NotFoundError at once).

        NotFoundError, TimedOutError. ValueError: the name leads to something else, which lookup() finds.
        """
        from ._dicts import lookup

        return lookup(self, name, timeout)

    def names(self, prefix: str = "") -> list[Name]:
        """The names that start with prefix, in byte order."""
        return [Name(*row) for row in self._names(prefix)]

    def inspect(self, what: str = "status") -> Any:
        """What the broker knows of "pools", "segments", "clients", "buffers", "leases", "names",
        "tokens", "devices", "events", "channels", "users", "requests" or "agents": a list of dictionaries; of "status": one dictionary.
        """
        rows = [json.loads(row) for row in self._inspect(what)]
        return rows[0] if what == "status" and rows else rows

    def monitor(
        self,
        *,
        pool: str | None = None,
        prefix: str | None = None,
        user: int | None = None,
        timeout: float | None = None,
    ) -> list[dict[str, Any]]:
        """What has happened at the broker since the last call, as sharectl(1) lists it under "watch":
        dictionaries with "action" and "time_ms"; [] when the time is over (None: no limit). The first
        call returns at once, with "start". pool, prefix, user: only what happens there, to names
        and channels that begin so, by this uid. What there was no room for is in the "count" of "lost".
        """
        if timeout is not None and not 0 <= timeout < 1e9:
            raise ValueError(f"timeout is seconds from 0 on, not {timeout!r}")
        left = -1 if timeout is None else math.ceil(timeout * 1000)
        return [json.loads(row) for row in self._monitor(pool, prefix, user, left)]

    def revoke(self, token: bytes | int | str) -> None:
        """Ends a token that this user made: itself, or its "token" in inspect("tokens"). NotFoundError: it
        has ended.
        """
        if isinstance(token, (int, str)):
            self._revoke_id(int(token, 16) if isinstance(token, str) else token)
        else:
            self._revoke(token)

    def drop(self, client: int) -> None:
        """Ends the connection of another client of this user (an administrator: of any), by its
        "client" in inspect("clients"). What it holds comes back when its process ends. NotFoundError, StaleError.
        """
        self._drop(client)

    def reload(self) -> list[dict[str, Any]]:
        """Has the broker read its configuration file again: the changes, each with "key", "change"
        and "now" (False: it takes a restart). DeniedError: for administrators. InvalidArgumentError: the file
        is wrong, and nothing has changed. NotSupportedError: it has no file.
        """
        return [json.loads(row) for row in self._reload()]

    def upgrade(self) -> dict[str, Any]:
        """Has the broker hand over to one of the program that is on the disk now: "from" and "to", the
        versions, and "pid". Nobody is disconnected. DeniedError: for administrators. NotSupportedError: the new
        program cannot go on, and the old one does.
        """
        return json.loads(self._upgrade()[0])

    def import_(self, token: bytes, *, mode: str | None = None, **stream: Any) -> Array:
        """The Array that a token stands for. mode: "r" or "rw"; None: whatever the token allows.
        stream as for lookup(). NotFoundError: there is no such token any more.
        """
        modes = {None: 0, "r": 1, "rw": 3}
        if mode not in modes:
            raise ValueError("a mode is 'r' or 'rw'")
        if stream.keys() - {"stream"}:
            raise TypeError(f"import_() takes token, mode and stream, not {', '.join(stream)}")
        return self._import(token, modes[mode], *stream.values())

    def host_stream(self) -> HostStream:
        """A new HostStream, which belongs to this client."""
        stream = HostStream(self)
        _open_streams.add(stream)
        return stream


def adopt(source: Any, pool: Pool, dtype: Any = None, **stream: Any) -> Array:
    """Pool.adopt() of that pool."""
    return pool.adopt(source, dtype, **stream)


def is_table(thing: Any) -> bool:
    """A table of pyarrow, polars or pandas, a column of one, or a relation of DuckDB."""
    return any(hasattr(thing, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "iloc", "collect_schema"))


def memory_of(source: Any, *, named: bool = False) -> tuple[memoryview, str | None]:
    """What has the buffer protocol, and the name of its dtype, which may be None where the caller has named
    one. TypeError: it has no such protocol; ValueError: as of Pool.array()."""
    need_plain(source)
    try:
        content = memoryview(source)
    except TypeError:
        how = "np.array() it first"
        if is_table(source):
            how = "libshare.arrow.to_pool(pool, table) takes tables, and to_numpy() makes an array of one column"
        elif isinstance(source, getattr(sys.modules.get("torch"), "Tensor", ())):
            how = "libshare.torch.to_pool(pool, tensor) copies tensors, and array_of() is the Array of the copy"
        elif isinstance(source, Mapping):
            how = "publish() and send() take a dict of arrays"
        raise TypeError(f"what is to be copied needs the buffer protocol, and "
                        f"{type(source).__name__!r} has it not: {how}") from None
    except ValueError as e:  # NumPy: of dates, the protocol knows nothing
        raise ValueError(f"{e}: {AS_BYTES}") from None
    name = _core._dtype_of(content)
    if content.format == "O":
        raise ValueError("objects of Python lie elsewhere than in this array: astype() makes numbers of them, and "
                         "libshare.arrow shares texts, as a table")
    if name is None and not named:
        raise ValueError(f"there is no dtype for the format {content.format!r}: {AS_BYTES}")
    return content, name


@extend(Pool)
class _Pool:
    def __repr__(self):
        if self.closed:
            return "<libshare.Pool closed>"
        info = self.info()
        return f"<libshare.Pool {info['name']!r} kind={info['kind']}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self.info()["name"]

    @property
    def kind(self) -> str:
        """Its kind of memory: "host", "vmm", "mempool", "legacy", "pinned" or "adopted"."""
        return self.info()["kind"]

    @property
    def _on_host(self) -> bool:
        """Whether the CPU reaches its memory."""
        return not self.on_gpu or self.kind == "pinned"

    def zeros(self, shape: Any, dtype: Any = "float64", **options: Any) -> Array:
        """As empty(), but all elements are zero. Waits until this is done."""
        array = self.empty(shape, dtype, **options)
        array.fill_zero(*([options["stream"]] if "stream" in options else []))
        return array

    def array(self, source: Any, dtype: Any = None, **options: Any) -> Array:
        """A copy of source, which has the buffer protocol (NumPy's arrays have) or is an Array, as of
        Array.to(), with its shape; in C order. What else lies on a GPU is copied by its framework, into empty().

        dtype: of the source; nothing is converted. To be named where the source has the bits of a
        dtype that NumPy has not (uint16 for bfloat16). Bytes that are something else: view() the copy.
        Records, dates, strings and numbers of the other byte order have no dtype here: copy their bytes,
        ``pool.array(x.view("uint8"))``, and read them as ``numpy.asarray(a).view(x.dtype)``.

        ValueError: a dtype that is none here, or a masked array, whose mask would be lost.
        """
        if isinstance(source, Array):
            if dtype is not None and code(dtype) != code(source.dtype):
                raise TypeError(f"the source is of {source.dtype}, not {dtype}: view() it")
            if source.on_gpu and (source.contiguous or not source.on_host):
                return self._array_of_gpu(source, options)
            source._wait()
            copy = self.empty(source.shape, source.dtype, **options)
            content: Any = source
        else:
            content, name = memory_of(source, named=dtype is not None)
            copy = self.empty(content.shape, dtype if dtype is not None else name, **options)
        copy.copy_from(content, *([options["stream"]] if "stream" in options else []))
        return copy

    def _array_of_gpu(self, source: Array, options: dict[str, Any]) -> Array:
        if not source.contiguous:
            raise ValueError("an Array of a GPU that is not contiguous is copied by a framework: libshare.torch.to_pool() of "
                             "a tensor of it, or into Pool.empty()")
        # to the host, the copy is on a stream of the GPU that it comes from
        stream = {} if self.on_gpu or "stream" not in options else {"stream": options.pop("stream")}
        copy = self.empty(source.shape, source.dtype, **options)
        source._copy_to(copy, **stream)
        return copy

    def adopt(self, source: Any, dtype: Any = None, **stream: Any) -> Array:
        """Makes an Array of memory that is there already, in a pool of kind "adopted", without a copy: it is
        published, exported and sent as any other. source has the buffer protocol (an array of NumPy, an
        mmap, SharedMemory.buf) or is a tensor of torch; it lies in a file in memory that this process has
        mapped as shared: a memfd, or a file in /dev/shm, as torch's share_memory_() makes them. Or it lies
        on a GPU (a tensor of torch, or what has ``__cuda_array_interface__``), in one allocation of
        cudaMalloc(), which is gone when this process ends or closes its connection (OwnerDiedError), or of
        cuMemCreate() that can be exported, as torch makes them with expandable_segments:True; others map
        all of that allocation.

        source is kept until nobody has the memory any more, in whatever process, or until this client is closed:
        do that last, as an allocator may give the memory to something else then, while others read it. It is
        the owner's to use as before, but that torch's storage must not be resized. Close a SharedMemory or an
        mmap after release() and ping() (BufferError before). reclaim() of the Array
        tells when nobody else has it. array_of() finds the Array as long as there is one here. dtype: as of array().

        InvalidArgumentError: it is no such memory, but this process's own; the text says which. ExistsError: it
        is an Array already. ValueError: it is read-only, or has no elements. NotSupportedError: the
        pool is of another kind, or no other process can have that memory of a GPU. OutOfMemoryError,
        QuotaExceededError, DeniedError.
        """
        if stream.keys() - {"stream"}:
            raise TypeError(f"adopt() takes source, dtype and stream, not {', '.join(stream)}")
        if isinstance(source, Array):
            raise ValueError("an Array lies in a pool already: publish(), export() or send it as it is")
        layout = framework_layout(source)
        if layout is not None:
            if dtype is not None and code(dtype) != code(layout[1]):
                raise TypeError(f"the source is of {layout[1]}, not {dtype}: view() it")
            if not callable(getattr(source, "data_ptr", None)) and source.__cuda_array_interface__["data"][1]:
                raise ValueError("it is read-only, and who gets an Array may write to it")
            # a tensor may be given other memory later (.data, set_()), and then this one would go
            kept = (source, source.detach()) if callable(getattr(source, "detach", None)) else source
            place = (layout[0], *layout[2:], on_gpu(source), order_of(source))
            return self._adopt(kept, layout[1], place, *stream.values())
        content, name = memory_of(source, named=dtype is not None)
        if content.readonly:
            raise ValueError("it is read-only, and who gets an Array may write to it")
        if dtype is not None and code(dtype) & 0xff != content.itemsize * 8:
            raise ValueError(f"elements of {content.itemsize} bytes are not of {dtype}: view() the Array")
        return self._adopt(content, dtype if dtype is not None else name, None, *stream.values())

    def publish(self, name: str, source: Any, *, persistent: bool = False) -> int:
        """Copies source into this pool and makes the name lead to it, in place of what it led to. Returns
        the version.

        source: an Array or what array() takes, which Client.lookup() finds; a tensor of torch; or a dict of
        these with texts as keys, which Client.lookup_dict() finds: they are replaced together. An Array that
        lies in a pool already is published without a copy by its own publish(). Tables (DataFrames) are
        published by libshare.arrow. persistent: the name stays when this process ends.

        TypeError: that cannot be published; the text says what can. ValueError: it has a dtype that is none
        here. OutOfMemoryError, DeniedError.
        """
        from ._dicts import publish  # what few programs need

        return publish(self, name, source, persistent)
