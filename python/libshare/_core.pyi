# SPDX-License-Identifier: MIT
# The types in C, with what the package adds to them in Python. What is said here of the former is what
# help() says of them (describe.py); of the latter, tests/python/stub_docs.py takes it from their docstrings.

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, SupportsIndex, TypeAlias

from typing_extensions import Buffer, Self

class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

Device: TypeAlias = str | int | tuple[int, int] | Any
Kind: TypeAlias = Literal["auto", "host", "vmm", "mempool", "legacy", "pinned", "adopted"]
Mode: TypeAlias = Literal["r", "rw"]
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
Stream: TypeAlias = _CudaStream | HostStream | int | Any | None
Timeout: TypeAlias = float | None
Token: TypeAlias = bytes

version: str

class Name(NamedTuple):
    """A name, and what it leads to."""
    name: str
    version: int
    buffer: int
    size: int
    pool: str
    uid: int
    persistent: bool

class Change(NamedTuple):
    """A change of a name."""
    change: Literal["published", "replaced", "unpublished", "overflow"]
    name: str
    version: int
    buffer: int

class _Closes:
    @property
    def closed(self) -> bool:
        """Whether it was closed."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...

class Client(_Closes):
    """A connection to a broker: see libshare.connect()."""
    def close(self) -> None:
        """Give the connection up. It ends when the last thing made from it is gone: memory in use stays.
        May be called again."""
    @property
    def address(self) -> str:
        """Path of the broker's socket. It can be read in a forked child, which connects to it."""
    def fileno(self) -> int:
        """A descriptor that is readable when dispatch() has something to do. For event loops; not to be
        read or closed."""
    def ping(self) -> None:
        """One request and its reply: the broker is there, and has seen all before."""
    def dispatch(self) -> int:
        """Handle what the broker sent unasked; never blocks. How many look-ups and watches it served."""
    def ending(self) -> float:
        """Whether the broker is about to end, and tells its clients before: then the seconds until it does at the latest, in which to release everything and to close; else 0."""
    def pool(
        self,
        name: str = "default",
        *,
        kind: Kind | None = None,
        limit: int | str | None = None,
        device: str | None = None,
        segment_size: int | str | None = None,
        alignment: int | str | None = None,
        release_threshold: int | str | None = None,
        access: Any = None,
        persistent: bool = False,
        same_address: bool = False,
        reuse: Literal["gate", "clean", "scrub"] = "gate",
        create: bool | None = None,
        prefault: int | str | None = None,
        huge_pages: Literal["system", "advise", "require"] = "system",
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
        NotSupportedError, DeviceError, QuotaExceededError."""
    def destroy_pool(self, name: str, /) -> None:
        """Remove a pool's name. It takes no new buffers, and ends with its last one."""
    def host_stream(self) -> HostStream:
        """A new HostStream, which belongs to this client."""
    def lookup(
        self,
        name: str,
        mode: Mode = "r",
        *,
        timeout: Timeout = None,
        stream: Stream = ...,
        readonly_ok: bool = False,
    ) -> Array:
        """The Array that a name leads to, waiting up to timeout seconds (None: without limit) for it to be
        published. Work enqueued on the stream afterwards comes after what its publisher enqueued before;
        with host memory and no HostStream the call waits for that, within the same time.

        mode: 'r' or 'rw'. readonly_ok: let frameworks have it that cannot be told that it is read-only.

        FileNotFoundError: not there (timeout 0). TimeoutError: still not there, or not finished.
        PermissionError. OwnerDiedError: the publisher died before its work was done."""
    def lookup_async(
        self,
        name: str,
        mode: Mode = "r",
        *,
        timeout: Timeout = None,
        stream: Stream = None,
        readonly_ok: bool = False,
    ) -> Operation:
        """Starts a look-up: ``a = await c.lookup_async("name", timeout=1.0)``. As lookup().
                """
    def lookup_dict(self, name: str, *, timeout: Timeout = None) -> dict[str, Array]:
        """What Pool.publish() has published of a dict: a dict of Arrays of one version, read-only and in
        place. timeout: seconds until somebody has published it (0: NotFoundError at once).

        NotFoundError, TimedOutError. ValueError: the name leads to something else, which lookup() finds."""
    def unpublish(self, name: str, /) -> None:
        """Remove a name. FileNotFoundError, PermissionError."""
    def names(self, prefix: str = "") -> list[Name]:
        """The names that start with prefix, in byte order."""
    def watch(self, prefix: str = "") -> Watch:
        """Every later change of the names that start with prefix: ``for change in c.watch("a/")``,
        or ``async for``. To see the state and all changes after it, watch first, then names().
        Ends when it is closed."""
    def import_(self, token: Token, *, mode: Mode | None = None, stream: Stream = ...) -> Array:
        """The Array that a token stands for. mode: "r" or "rw"; None: whatever the token allows.
        stream as for lookup(). NotFoundError: there is no such token any more."""
    def revoke(self, token: Token | int | str) -> None:
        """Ends a token that this user made: itself, or its "token" in inspect("tokens"). NotFoundError: it
        has ended."""
    def drop(self, client: int) -> None:
        """Ends the connection of another client of this user (an administrator: of any), by its
        "client" in inspect("clients"). What it holds comes back when its process ends. NotFoundError, StaleError."""
    def end_channel(self, name: str) -> None:
        """End the messages that wait in a queue though their producers are gone. NotFoundError: there are none of this
        user's."""
    def reload(self) -> list[dict[str, Any]]:
        """Has the broker read its configuration file again: the changes, each with "key", "change"
        and "now" (False: it takes a restart). DeniedError: for administrators. InvalidArgumentError: the file
        is wrong, and nothing has changed. NotSupportedError: it has no file."""
    def upgrade(self) -> dict[str, Any]:
        """Has the broker hand over to one of the program that is on the disk now: "from" and "to", the
        versions, and "pid". Nobody is disconnected. DeniedError: for administrators. NotSupportedError: the new
        program cannot go on, and the old one does."""
    def inspect(
        self,
        what: Literal[
            "status", "pools", "segments", "clients", "buffers", "leases", "names", "tokens", "devices", "events",
            "channels", "users", "requests", "agents"
        ] = "status",
    ) -> Any:
        """What the broker knows of "pools", "segments", "clients", "buffers", "leases", "names",
        "tokens", "devices", "events", "channels", "users", "requests" or "agents": a list of dictionaries; of "status": one dictionary."""
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
        and channels that begin so, by this uid. What there was no room for is in the "count" of "lost"."""
    def fence_stats(self) -> dict[str, int]:
        """What ordering has cost this client so far, as a dictionary of counts."""
    def record(self, *, stream: Stream = None) -> Fence:
        """A Fence that is reached when all work that was enqueued on the stream so far is done, and which has
        wait(), query() and synchronize(). It may
        be sent to other processes, and forgotten. None: the calling thread, which is done already."""
    def wait(self, fence: Fence, *, stream: Stream = None) -> None:
        """fence.wait(client=…), for one version more."""
    def query(self, fence: Fence) -> bool:
        """fence.query(client=…), for one version more."""
    def synchronize(self, fence: Fence, timeout: Timeout = None) -> None:
        """fence.synchronize(client=…), for one version more."""
    def event(
        self,
        *,
        device: str | None = None,
        name: str | None = None,
        open: str | None = None,
        token: Token | None = None,
    ) -> Event:
        """An interprocess event of CUDA: a new one, which others may open by its name; or the one
        of that name (open), or of that token. Prefer fences: see <share/event.h>."""
    def service(self, name: str, pool: Pool, **options: Any) -> Caller:
        """pool.caller(name), for one version more."""
    def worker(self, name: str, pool: Pool, **options: Any) -> Worker:
        """pool.worker(name), for one version more."""

class Pool(_Closes):
    """A pool of memory: see Client.pool()."""
    def close(self) -> None:
        """Give the handle up; what was made in the pool stays. May be called again."""
    @property
    def client(self) -> Client:
        """The client that it was opened with."""
    @property
    def name(self) -> str:
        """Its name."""
    @property
    def kind(self) -> Literal["host", "vmm", "mempool", "legacy", "pinned", "adopted"]:
        """Its kind of memory: "host", "vmm", "mempool", "legacy", "pinned" or "adopted"."""
    @property
    def on_gpu(self) -> bool:
        """Whether its memory is a GPU's."""
    def info(self) -> dict[str, Any]:
        """What was true when it was opened, as a dictionary: name, kind, device (UUID, or None for host
        memory), limit, segment_size, alignment (bytes), readonly, manage, persistent, same_address,
        reuse ('gate', 'clean' or 'scrub'), reason (why it is of this kind). A forked child can read it."""
    def stats(self) -> dict[str, int]:
        """What this process has of the pool, in bytes that it takes there: used, by Arrays, messages that are
        not acknowledged and work; kept, which nothing uses, for allocations to come; cache, what kept may be at
        most (set_cache()); and how many blocks these are, used_buffers and kept_buffers. To others, and in
        sharectl pools, all of it is used. Memory that another process has allocated is that process's."""
    def set_cache(self, nbytes: int, /) -> None:
        """How much of what it released this process keeps for allocations to come; 0: nothing."""
    def map_ahead(self, mode: Mode = "r") -> None:
        """Map the memory that the pool has by now, so that no look-up, import or message has to: with memory of
        a GPU that takes 0.1 ms for a segment or, of kind 'mempool', up to 1 ms for each GiB. What the pool
        grows by later is mapped by the next call; consumers map it as it comes. mode: 'r' or 'rw', as lookup()
        is to have it.

        PermissionError, NotSupportedError, NoDeviceError, DeviceError."""
    def alloc(
        self, nbytes: int, *, alignment: int = 0, stream: Stream = ..., timeout: float | None = None
    ) -> Array:
        """An Array of nbytes bytes, for reading and writing; its content is undefined. Work enqueued on
        the stream afterwards may use it. alignment: a power of two, in bytes; 0: the pool's. timeout: how
        long to wait for the work of others on memory that they have given back; None: as long as they do that.
        Memory that others hold is not waited for.

        OutOfMemoryError (a MemoryError), NotReadyError, PermissionError, QuotaExceededError, ValueError."""
    def empty(
        self, shape: Shape, dtype: Any = "float64", *, alignment: int = 0, stream: Stream = ...,
        timeout: float | None = None
    ) -> Array:
        """An Array of that shape (a number or a tuple) and dtype (of any framework, or its name), in C order;
        its content is undefined. Otherwise as alloc()."""
    def zeros(
        self, shape: Shape, dtype: Any = "float64", *, alignment: int = 0, stream: Stream = ...
    ) -> Array:
        """As empty(), but all elements are zero. Waits until this is done."""
    def array(
        self, source: Any, dtype: Any = None, *, alignment: int = 0, stream: Stream = ...
    ) -> Array:
        """A copy of source, which has the buffer protocol (NumPy's arrays have) or is an Array, as of
        Array.to(), with its shape; in C order. What else lies on a GPU is copied by its framework, into empty().

        dtype: of the source; nothing is converted. To be named where the source has the bits of a
        dtype that NumPy has not (uint16 for bfloat16). Bytes that are something else: view() the copy.
        Records, dates, strings and numbers of the other byte order have no dtype here: copy their bytes,
        ``pool.array(x.view("uint8"))``, and read them as ``numpy.asarray(a).view(x.dtype)``.

        ValueError: a dtype that is none here, or a masked array, whose mask would be lost."""
    def adopt(self, source: Any, dtype: Any = None, *, stream: Stream = ...) -> Array:
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
        QuotaExceededError, DeniedError."""
    def publish(self, name: str, source: Any, *, persistent: bool = False) -> int:
        """Copies source into this pool and makes the name lead to it, in place of what it led to. Returns
        the version.

        source: an Array or what array() takes, which Client.lookup() finds; a tensor of torch; or a dict of
        these with texts as keys, which Client.lookup_dict() finds: they are replaced together. An Array that
        lies in a pool already is published without a copy by its own publish(). Tables (DataFrames) are
        published by libshare.arrow. persistent: the name stays when this process ends.

        TypeError: that cannot be published; the text says what can. ValueError: it has a dtype that is none
        here. OutOfMemoryError, DeniedError."""
    def producer(
        self,
        name: str,
        *,
        mode: Literal["broadcast", "queue"] | None = None,
        when_full: Literal["block", "fail", "drop"] | None = None,
        depth: int = 0,
        in_flight: int = 0,
        buffers: int = 0,
        data_max: int = 0,
        producers: int = 0,
        consumers: int = 0,
        deliveries: int = 0,
        history: int = 0,
        stall: float | None = None,
        wait_for: int = 0,
        existing: bool = False,
    ) -> Producer:
        """Joins a channel as a producer. Makes the channel if there is none of that name.

        mode: "broadcast", the default: every consumer gets every message; "queue": each goes to one of them.
        when_full: "block" until there is room, "fail" with NotReadyError, "drop" the oldest. depth: messages not yet
        received, a power of two up to 4096; 64. in_flight: messages whose memory is not back, each of several Arrays once
        for each. buffers: how many Arrays a message has at most, up to 32; one. data_max: bytes with each message, 65535 at most; 256, and 320 for
        each of several buffers. Each producer and each consumer has to say what is more.
        producers, consumers: how many at a time. deliveries: in a queue, how often a message is
        tried. history: in a broadcast, how many of its last messages each producer keeps for
        consumers that come later, from "oldest"; their memory stays in use. stall: seconds until a
        consumer that keeps this producer waiting is left behind; infinity: never. wait_for: so many
        consumers have to be there, or there is no room: "block" waits for them, and the others are NotReadyError then. Without it a broadcast that has none drops its
        oldest messages, beyond depth, and the next consumer's first message says how many it has lost.
        existing: NotFoundError rather than make it.

        What is left out is as it is, or the default; who asks for something else gets ExistsError. BusyError:
        there are as many as there may be. DeniedError: producers have to be allowed to write."""
    def consumer(
        self,
        name: str,
        *,
        mode: Literal["broadcast", "queue"] | None = None,
        when_full: Literal["block", "fail", "drop"] | None = None,
        depth: int = 0,
        in_flight: int = 0,
        buffers: int = 0,
        data_max: int = 0,
        producers: int = 0,
        consumers: int = 0,
        deliveries: int = 0,
        history: int = 0,
        from_: Literal["newest", "oldest"] = "newest",
        latest: bool = False,
        writable: bool = False,
        existing: bool = False,
        readonly_ok: bool = False,
    ) -> Consumer:
        """Joins a channel as a consumer. The options are those of producer().

        from_: "newest": what is sent from now on, and what waits because no consumer was there; "oldest": and, in a
        broadcast, what is still there, which is the history at least. latest: of a broadcast, the latest message alone;
        `lost` says how many were missed. No producer waits for it, and it may hold two messages: BusyError until it has
        acknowledged one. in_flight has to be more than two for each such consumer, and the history. writable: messages
        are for writing, too. readonly_ok: see Client.lookup()."""
    def caller(
        self,
        name: str,
        *,
        depth: int = 0,
        callers: int = 0,
        workers: int = 0,
        deliveries: int = 0,
        buffers: int = 0,
        data_max: int = 0,
        readonly_ok: bool = False,
    ) -> Caller:
        """Joins a service as a caller. The buffers of requests and answers are of this pool.

        depth: requests that wait at one worker, of one caller; a power of two. callers, workers: how many at a
        time. deliveries: a request that so many workers died of fails. buffers: how many Arrays a
        request or an answer has at most, up to 32; one. data_max: bytes with each, 65519 at most; 240, and
        320 for each of several buffers. All have to say what is more. What is left out is as it
        is, or the default.

        As many calls are under way at a time as their answers have room for: 128, or 8192 / (callers * buffers)."""
    def worker(
        self,
        name: str,
        *,
        depth: int = 0,
        callers: int = 0,
        workers: int = 0,
        deliveries: int = 0,
        buffers: int = 0,
        data_max: int = 0,
        readonly_ok: bool = False,
    ) -> Worker:
        """Joins a service as a worker: ``for request in worker:
        request.reply(…)``. The options are those of caller()."""

class Array(Buffer):
    """Memory in a pool, and how to read it. Keeps the memory alive, as do all views and exports.

    Made by Pool.empty() and the like, Client.lookup(), messages."""
    @property
    def client(self) -> Client:
        """The client that it came from."""
    @property
    def shape(self) -> tuple[int, ...]:
        """Elements, by dimension."""
    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by dimension."""
    @property
    def dtype(self) -> str:
        """Its name, as 'float32'."""
    @property
    def ndim(self) -> int:
        """How many dimensions, 16 at most."""
    @property
    def size(self) -> int:
        """Elements."""
    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
    @property
    def offset(self) -> int:
        """Bytes from the start of its buffer to the first element."""
    @property
    def contiguous(self) -> bool:
        """Whether it is in C order, without gaps."""
    @property
    def on_gpu(self) -> bool:
        """Whether its memory is a GPU's."""
    @property
    def on_host(self) -> bool:
        """Whether the CPU reaches it: host memory, and memory of a GPU of kind 'pinned'."""
    @property
    def device(self) -> str:
        """'cpu', or 'cuda:0' as this process counts."""
    @property
    def readonly(self) -> bool:
        """Whether a store to it would fault."""
    readonly_ok: bool
    """Whether frameworks may have it that cannot be told that it is read-only: with vmm, a kernel that
    stores to it there takes the context down."""
    @property
    def closed(self) -> bool:
        """Whether it was given up."""
    @property
    def id(self) -> int:
        """What all processes call its buffer."""
    @property
    def version(self) -> int:
        """Of the name under which it was looked up; 0 when it came another way."""
    @property
    def ptr(self) -> int:
        """Address of the first element in this process: a CUdeviceptr if on_gpu."""
    metadata: Any
    """The buffer's metadata, a dictionary or a list that all holders can read and those who may
    write can replace; None: there is none. Gone with the buffer. ProtocolError: somebody has set
    what is no JSON, which raw_metadata() reads."""
    def raw_metadata(self) -> bytes | None:
        """The bytes of the buffer's metadata as somebody has set them, JSON or not; None: there are none."""
    def pickled(self, uses: int = 1) -> Any:
        """To be pickled instead of the Array, where one pickle goes to several processes: it can be
        unpickled so many times (0: any number of times within the time limit), and each time it is the
        Array."""
    @property
    def T(self) -> Array:
        """A view with its dimensions reversed."""
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    __dlpack_c_exchange_api__: Any
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> Array: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __iter__(self) -> Iterator[Array]: ...
    def __bool__(self) -> bool: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __eq__(self, other: Any, /) -> Any: ...
    def __ne__(self, other: Any, /) -> Any: ...
    def __hash__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __arrow_c_device_array__(self, requested_schema: Any = None) -> tuple[Any, Any]: ...
    def reshape(self, *shape: Any) -> Array:
        """A view of another shape with as many elements, of an Array that is contiguous; one dimension may
        be -1. ValueError."""
    def view(self, dtype: Any, /) -> Array:
        """The same bytes as elements of another dtype; the last dimension, which has to be contiguous, gets
        longer or shorter. ValueError."""
    def transpose(self, *axes: Any) -> Array:
        """A view with its dimensions in another order; without axes, reversed."""
    def as_strided(self, shape: Shape, strides: Shape, dtype: Any, offset: int, /) -> Array:
        """Any view within the buffer: strides in bytes, offset in bytes from the start of the buffer.
        ValueError: an element would lie outside."""
    def tobytes(self, stream: Stream = ...) -> bytes:
        """Its bytes, of memory of every kind, copied behind what is enqueued on the stream; waits for it."""
    def to(self, device: Pool | Device, *, copy: bool = False, stream: Stream = ...) -> Array:
        """The same content in a pool or on a device: this Array itself, if it is there already and copy is
        False; else a copy with its shape and dtype, in C order, for reading and writing.

        device: a Pool, of whatever connection, which is the copy's then; or "cpu", "cuda", "cuda:1", the number of a
        GPU, a torch.device, or what ``__dlpack_device__()`` answers. On its own device a copy is in the Array's own pool; on
        another one in the only pool of it that this process has open by the Array's client and may allocate from.
        One of kind "pinned", which the CPU reaches as well, is on its GPU; a pool of that kind is only copied to by naming it.
        "cuda": the GPU that is current in torch or CuPy, or any, where neither uses one.

        The copy comes after the work on the Array: on the stream that it was acquired on, on those of record_stream(), and on
        a framework's current stream of its GPU. What is enqueued on the first and the last from now on comes after the
        copy. From GPU to GPU it is enqueued, and the call waits for nothing, but where one cannot reach the other, and
        between their default streams. All other copies are done when the call returns, and ^C ends the wait for the
        HostStreams of an Array of host memory. stream: of the GPU that is copied to, as of Pool.empty(), or that is copied
        from, if that is to the host; of an Array that is there already, what is enqueued on it from now on comes after the
        work on the Array. It may be called in any thread (``await asyncio.to_thread(a.to, pool)``); what is current in a
        framework is so in its thread.

        ValueError: that is no device; no pool of it is open, or several; an Array of a GPU that is not contiguous, unless the CPU reaches it.
        OutOfMemoryError, DeniedError, QuotaExceededError, DeviceError. NotSupportedError: the pool is of kind "adopted"."""
    def copy_from(self, source: Buffer, stream: Stream = ...) -> None:
        """Copies what has the buffer protocol, and as many bytes, into memory of every kind, behind what is
        enqueued on the stream; waits for it. The source is of the same dtype and shape, or bytes
        in a row: nothing is converted."""
    def fill_zero(self, stream: Stream = ...) -> None:
        """Zeros in all of it, of memory of every kind; waits for it."""
    def publish(
        self,
        name: str,
        *,
        stream: Stream = ...,
        persistent: bool = False,
        exclusive: bool = False,
        mode: Mode = "rw",
        expected_version: int = 0,
    ) -> int:
        """Make the name lead to this Array, with its dtype, shape, strides and offset, atomically in place of
        what it led to. Who looks it up is ordered after what was enqueued on the stream before. The name has a
        reference of its own, and goes when this process ends unless persistent. Returns its version, larger than
        all earlier ones.

        The right to a view is the right to its whole buffer.

        mode: at most this for those who look it up. exclusive: FileExistsError rather than replace.
        expected_version: BusyError unless that is what is replaced."""
    def export(
        self, *, stream: Stream = ..., mode: Mode = "r", uses: int = 1, timeout: Timeout = None
    ) -> Token:
        """A token of 32 bytes: the right to import this Array, with its dtype, shape, strides and offset. It
        has a reference of its own, and ends after so many uses (0: never), after timeout seconds (None: never),
        with Client.revoke(), or with this process. Send it over what is private. The right to a view is the right to its whole buffer."""
    def status(self) -> bool:
        """Whether the content of its buffer is good: True; False while its giver's work still runs. Does not wait. OwnerDiedError:
        the giver died first, and the content means nothing."""
    async def good(self) -> None:
        """Waits until the content is good; see status(). OwnerDiedError: it will never be good."""
    def info(self) -> dict[str, Any]:
        """Where its whole buffer lies, also for a view of a part, as a dictionary: size, segment_size, offset
        (bytes; Array.offset is to be added), kind, device (UUID, or None for host memory), ordinal (of the
        device here, or -1), segment, ordered ('nothing', 'stream' or 'host': how it came after the work of
        others when it was acquired)."""
    def reclaim(self, timeout: float | None = 0, stream: Stream = ...) -> bool:
        """Whether this process is the only one that has the buffer, with no name, token or message that leads
        to it; waits so many seconds for that (None: without limit). Work enqueued on the stream afterwards then
        comes after all that others did with the memory, so it can be used again."""
    def recipe(self) -> dict[str, Any]:
        """How to reach the Array's first element without this library, as a dictionary: kind, fd (the caller's,
        to be closed), readonly, segment_size, offset (bytes), device (UUID or ''), pointer (64 bytes, for
        mempool and legacy). Good as long as the Array. The fd leads to the whole segment, whichever part of it the Array
        is."""
    def record_stream(self, stream: Stream, /) -> None:
        """The memory is in use on that stream as well: it is given up behind what is on it by then."""
    def release(self, stream: Stream = ...) -> None:
        """Give the Array up: work enqueued before on the stream, on the one it was acquired on, and on those
        of record_stream() may go on using the memory; nobody else's touches it before that is done. Views,
        and what it was exported to, keep the memory. May be called again; the destructor does the same."""
    def __copy__(self) -> Array: ...
    def __deepcopy__(self, memo: Any, /) -> Array: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...

class HostStream(_Closes):
    """A FIFO of functions that a thread of the library's runs. To host memory it is what a CUDA
    stream is to memory of a GPU."""
    def close(self) -> None:
        """Wait for what is enqueued, and end the thread. May be called again."""
    def __init__(self, client: Client) -> None: ...
    def launch(self, function: Callable[[], object], /) -> None:
        """Have function() called by the stream's thread, after all that was enqueued before. Returns at
        once. An exception goes to sys.unraisablehook."""
    def synchronize(self, timeout: Timeout = None) -> None:
        """Wait until all is done that was enqueued before, for at most timeout seconds. Not from a
        function on the stream."""

class Fence:
    """A point on a timeline: what was enqueued on a stream before it was recorded. Two numbers,
    which may be sent to other processes by any means. Made by Client.record()."""
    def __init__(self, timeline: int = 0, value: int = 0) -> None: ...
    @property
    def timeline(self) -> int:
        """Which timeline; 0: the fence is reached already."""
    @property
    def value(self) -> int:
        """What that has to get to."""
    @property
    def client(self) -> Client | None:
        """The Client that has recorded it; None: it came from elsewhere."""
    def wait(self, *, client: Client | None = None, stream: Stream = None) -> None:
        """Makes the stream wait for the fence; None: the calling thread waits. client: by whose connection, if
        the fence came from another process. OwnerDiedError: its owner died before it got there.
        StaleError: there is no such timeline any more."""
    def query(self, *, client: Client | None = None) -> bool:
        """Whether the fence is reached. Never waits. OwnerDiedError: it will never be reached."""
    def synchronize(self, timeout: Timeout = None, *, client: Client | None = None) -> None:
        """Waits until the fence is reached. TimedOutError, OwnerDiedError."""

class Event(_Closes):
    """An interprocess event of CUDA: see Client.event()."""
    def close(self) -> None:
        """Give the handle up. Work that was enqueued goes on. May be called again."""
    @property
    def handle(self) -> bytes:
        """64 bytes: a CUipcEventHandle."""
    @property
    def device(self) -> str:
        """UUID of its device."""
    @property
    def id(self) -> int:
        """What all processes call it."""
    def record(self, stream: Stream, /) -> None:
        """Waits that are called from now on, in any process, are for what was enqueued on the CUDA stream until
        now."""
    def wait(self, stream: Stream, /) -> None:
        """What is enqueued on the stream from now on waits for what the event stands for. When the process that
        recorded it is killed before, it waits for ever: have a stream of its own for it."""
    def export(self) -> Token:
        """Its token, for Client.event(token=…) of any user; good as long as the event."""

class Watch(_Closes):
    """Changes of names: see Client.watch()."""
    @property
    def closed(self) -> bool:
        """Whether it was closed, or is over."""
    def close(self) -> None:
        """End the watch. May be called again."""
    @property
    def client(self) -> Client:
        """The client that it came from."""
    def fileno(self) -> int:
        """Readable when next() has something; somebody has to call Client.dispatch() for that."""
    def next(self, timeout: Timeout = None) -> Change:
        """The next Change. TimedOutError, NotReadyError (timeout 0): there was none."""
    async def next_async(self, timeout: Timeout = None) -> Change:
        """As next(), for asyncio."""
    def __iter__(self) -> Iterator[Change]: ...
    def __next__(self) -> Change: ...
    def __aiter__(self) -> AsyncIterator[Change]: ...
    async def __anext__(self) -> Change: ...

class Operation(Awaitable[Array]):
    """What was started: see Client.lookup_async()."""
    @property
    def client(self) -> Client:
        """The client that it came from."""
    @property
    def closed(self) -> bool:
        """Whether it was closed, or is over."""
    def close(self) -> None:
        """Give it up. May be called again."""
    def fileno(self) -> int:
        """Readable when result() has something; somebody has to call Client.dispatch() for that."""
    def result(self, timeout: Timeout, /) -> Array:
        """The Array that was looked up, once; or None, when an array is good."""
    async def result_async(self) -> Array:
        """As result(), for asyncio. Canceling the task gives the operation up."""
    def __await__(self) -> Generator[Any, None, Array]: ...

class Producer(_Closes):
    """Sends into a channel: see Pool.producer()."""
    def close(self) -> None:
        """Leave the channel. What was sent can still be received by consumers that were there, and in
        a queue by others; flush() first where others of a broadcast matter. May be called again."""
    @property
    def client(self) -> Client:
        """The client that it was opened with."""
    def fileno(self) -> int:
        """A descriptor that is readable when there may be something to receive, or room to send. Once it was
        asked for, receive (or send) with timeout 0 until NotReadyError before each wait. Not to be read or closed."""
    def stats(self) -> dict[str, int]:
        """What came of its messages, as a dictionary of counts: sent, received, acknowledged, dropped,
        redelivered, set_aside, rejected, left_behind, sleeps, in_flight, producers, consumers, waiting."""
    def send(
        self,
        array: Array | list[Array] | dict[str, Array] | None = None,
        meta: Any = None,
        *,
        data: Buffer | None = None,
        stream: Stream = ...,
        timeout: Timeout = None,
        give: bool = False,
    ) -> None:
        """Send an Array of the channel's pool, a list or a dict of such (of a channel with buffers=), or None, with dtype,
        shape, strides and offset, and meta (as JSON) or data (bytes): what goes with the memory is data_max bytes at
        most. The message has references of its own. Work that consumers enqueue comes after what was enqueued on the stream before; without an
        Array that is so for a stream that is named.

        timeout: for room, where the channel waits for that. give: release(stream) in the same step; views and
        exports of the Array keep it.

        TimedOutError, NotReadyError: no room. InvalidArgumentError: another pool, or too much data."""
    async def send_async(
        self,
        array: Array | list[Array] | dict[str, Array] | None = None,
        meta: Any = None,
        *,
        data: Buffer | None = None,
        stream: Stream = ...,
        timeout: Timeout = None,
        give: bool = False,
    ) -> None:
        """As send(), for asyncio. Once it was canceled nothing is sent any more."""
    def send_many(
        self,
        messages: Sequence[
            Array | list[Array] | dict[str, Array] | tuple[Array | list[Array] | dict[str, Array] | None, Any]
        ],
        *,
        stream: Stream = ...,
        timeout: Timeout = None,
    ) -> int:
        """Send many at once, with one signal and one wake-up: a sequence of what send() takes, or of pairs (tuples) of
        that and its meta. Waits for room as send(). How many were sent, at least 1; or as send()."""
    def flush(self, timeout: Timeout = None) -> None:
        """Wait until nothing of what was sent waits for a consumer to come, or in a queue for one to have room:
        consumers can receive it then, though this process end."""
    def drain(self, timeout: Timeout = None, *, before: int | None = None) -> None:
        """Wait until every message that was sent before is acknowledged by all who got it, or was dropped or
        delivered too often (stats() counts those). before: of these, those with a smaller number (as stats() says
        under sent).

        TimedOutError, NotReadyError (timeout 0): some are not; the text says which process has yet to acknowledge some."""
    async def drain_async(self, timeout: Timeout = None) -> None:
        """As drain(), for asyncio."""
    def take_back(self) -> Message | None:
        """In a queue: the next message that was delivered too often, each time to a consumer that died or left
        with it, or rejected it; None: there is none. To be acknowledged like one that was received."""

class _Receives(_Closes):
    @property
    def client(self) -> Client:
        """The client that it was opened with."""
    async def recv_async(self, timeout: Timeout = None, *, stream: Stream = ...) -> Message:
        """As recv(), for asyncio."""
    def messages(self, *, stream: Stream = ...) -> Iterator[Message]:
        """Iterates over what is received, on that stream; each message is acknowledged at the end of the step,
        unless it was before. Ends when the last one to send has left. To iterate over the object itself is
        the same, with the stream left out."""
    def messages_async(self, *, stream: Stream = ...) -> AsyncIterator[Message]:
        """As messages(), for ``async for``; to iterate over the object itself is the same."""
    def __iter__(self) -> Iterator[Message]: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...

class Consumer(_Receives):
    """Receives from a channel: see Pool.consumer()."""
    def close(self) -> None:
        """Receive no more; messages that were received stay until they are acknowledged. May be called again."""
    def fileno(self) -> int:
        """A descriptor that is readable when there may be something to receive, or room to send. Once it was
        asked for, receive (or send) with timeout 0 until NotReadyError before each wait. Not to be read or closed."""
    def recv(self, timeout: Timeout = None, *, stream: Stream = ...) -> Message:
        """The next Message. Work enqueued on the stream afterwards comes after what its producer enqueued before
        sending; with host memory and no HostStream the call waits for that.

        NotReadyError (timeout 0), TimedOutError: there is none. PeerGoneError: the last producer has closed the channel.
        OwnerDiedError: it has died; or, with a `message`, that one's producer died before its work was done. Each is
        said once; the next call waits for a new producer. StaleError: this consumer was left behind."""
    def stats(self) -> dict[str, int]:
        """What came of its messages, as a dictionary of counts: sent, received, acknowledged, dropped,
        redelivered, set_aside, rejected, left_behind, sleeps, in_flight, producers, consumers, waiting."""

class Worker(_Receives):
    """Answers for a service: see Pool.worker()."""
    def close(self) -> None:
        """Leave the service. Callers of requests that it has not answered get CanceledError. May be called
        again."""
    def fileno(self) -> int:
        """A descriptor that is readable when there may be a request, or an answer. Ask with timeout 0 before
        each wait. Not to be read or closed."""
    def recv(self, timeout: Timeout = None, *, stream: Stream = ...) -> Message:
        """The next request, a Message to be answered by reply(). As Consumer.recv(); PeerGoneError: all callers have
        left or died."""

class Message:
    """A message, received: a loan until it is acknowledged."""
    @property
    def array(self) -> Array | Any:  # None is of messages that were sent without one, which who reads them knows
        """The memory, as its sender described it, of several the first; None: it has none."""
    @property
    def arrays(self) -> list[Array] | dict[str, Array]:
        """All memory, a list or a dict, as it was sent; [array], or [], where it was no such."""
    @property
    def meta(self) -> Any:
        """What was sent as meta; None: nothing. ValueError: it is no JSON."""
    @property
    def data(self) -> bytes:
        """The bytes that were sent as data, or as JSON."""
    @property
    def number(self) -> int:
        """Of its producer's messages, from 0."""
    @property
    def lost(self) -> int:
        """So many of that producer's were dropped right before it."""
    @property
    def producer(self) -> int:
        """Tells producers apart; never used again."""
    @property
    def deliveries(self) -> int:
        """1; more when it was had before, by who died, left or rejected it."""
    @property
    def closed(self) -> bool:
        """Whether it was acknowledged or rejected."""
    def ack(self, stream: Stream = ...) -> None:
        """Acknowledge the message: what was enqueued before on the stream may go on using its memory, nobody
        else's work touches it before that is done. In any order; the destructor does the same. Whoever still
        has the Array keeps it, at the price of a request to the broker. May be repeated."""
    def reject(self, stream: Stream = ...) -> None:
        """Of a queue: give the message back. Another consumer gets it, or this one once more if no other has room,
        with `deliveries` + 1; after as many as the channel allows it is set aside (Producer.take_back()). Waits
        for what was enqueued before on the stream.

        NotSupportedError: it is of a broadcast or a service, or its producer has an older library."""
    def reply(
        self,
        array: Array | list[Array] | dict[str, Array] | None = None,
        meta: Any = None,
        *,
        data: Buffer | None = None,
        stream: Stream = ...,
    ) -> None:
        """Of a request to a service: answer with an Array, several or None, and meta or data as for Producer.send(), and
        acknowledge the request. The stream is where the work on both was enqueued.

        CanceledError, OwnerDiedError: nobody waits for the answer any more; the request is given up all the same."""
    def status(self) -> None:
        """Of a request to a service: None while somebody waits for the answer; CanceledError, OwnerDiedError."""
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None: ...

class Caller(_Closes):
    """Asks a service: see Pool.caller()."""
    def close(self) -> None:
        """Leave the service, once calls are over and requests answered. May be called again."""
    @property
    def client(self) -> Client:
        """The client that it was opened with."""
    def fileno(self) -> int:
        """A descriptor that is readable when there may be a request, or an answer. Ask with timeout 0 before
        each wait. Not to be read or closed."""
    def call(
        self,
        array: Array | list[Array] | dict[str, Array] | None = None,
        meta: Any = None,
        *,
        data: Buffer | None = None,
        timeout: Timeout = None,
        stream: Stream = ...,
    ) -> Message:
        """Ask: send an Array, several (where the service has buffers=) or None, and meta or data, as Producer.send(), and wait for the answer, a Message to
        be acknowledged. The worker gets the Arrays for reading. Work enqueued on the stream afterwards comes
        after the worker's.

        TimedOutError: no worker has answered in time. OwnerDiedError: all workers that had it died, or the one that
        answered did before its work was done. CanceledError: a worker gave the request up."""
    async def call_async(
        self,
        array: Array | list[Array] | dict[str, Array] | None = None,
        meta: Any = None,
        *,
        data: Buffer | None = None,
        timeout: Timeout = None,
        stream: Stream = ...,
    ) -> Message:
        """As call(), for asyncio. If the task is canceled, the call is given up."""
    def start(
        self,
        array: Array | list[Array] | dict[str, Array] | None = None,
        meta: Any = None,
        *,
        data: Buffer | None = None,
        stream: Stream = ...,
    ) -> Pending:
        """The first half of call(): a Pending, so that several calls may be under way. NotReadyError: no room."""

class Pending(Awaitable[Message]):
    """A call under way."""
    @property
    def caller(self) -> Caller:
        """The Caller that asked."""
    @property
    def done(self) -> bool:
        """Whether it is over, or was given up."""
    def finish(self, timeout: Timeout = None, *, stream: Stream = ...) -> Message:
        """The answer, in any order of calls. TimedOutError, NotReadyError (timeout 0): not there yet, and the call goes on.
        Other errors as of Caller.call(), which end it."""
    async def finish_async(self, timeout: Timeout = None, *, stream: Stream = ...) -> Message:
        """As finish(), for asyncio."""
    def cancel(self) -> None:
        """Give the call up; the destructor does the same."""
    def __await__(self) -> Generator[Any, None, Message]: ...

def dtype_code(name: str, /) -> int:
    """The library's number for a dtype by its name; 0: it does not know it."""
