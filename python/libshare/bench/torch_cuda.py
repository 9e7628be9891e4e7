# SPDX-License-Identifier: MIT
"""A tensor of a GPU to another process, and a number back, against torch.multiprocessing.

Both do the same: this process makes a tensor and fills it by a kernel; then the clock starts, the
tensor is handed over, the other process gets a tensor of it and sends its number of elements back;
then the clock stops. After that the other process reads an element, which has to be the one that
was filled in, and says so, and both wait until the GPU is done.

The whole of it, from before the kernel until this process knows what the other has read, stands
against the same kernel, read and waited for in this process alone: what is more is the price of
the other process. It stands as well against what two processes do by hand: they have one tensor for
good, an interprocess event puts them in order, and numbers in shared memory say when.
"""

from __future__ import annotations

import struct
from time import perf_counter
from typing import Any, Callable, Iterator

import libshare

from .figures import Report, median_of_rounds, short

_SIZES = {"4KiB": 4 << 10, "1MiB": 1 << 20, "64MiB": 64 << 20}
_LEAST = 20.0  # times as long as ours
_MORE = 6.0  # us that the other process may add to the whole
_NUMBER = struct.Struct("<q")

# Numbers that two processes share: whose turn it is, of how many bytes, what was read, and in which turn.
_TURN, _SIZE, _FOUND, _READ, _END = 0, 1, 2, 3, -1

ROWS = {
    f"torch-cuda.{size}{how}": f"a tensor of {size} by a channel, {words}; against: torch.multiprocessing"
    for size in _SIZES
    for how, words in (("", "waiting in recv()"), (".spin", "looking again and again"))
} | {
    f"torch-cuda.{size}.whole": f"{size} filled, handed over and read, looking again and again; against: in one process"
    for size in _SIZES
} | {
    f"torch-cuda.{size}.whole.event": "the same; against: two processes with an interprocess event" for size in _SIZES
}


def _receive(consumer: libshare.Consumer, spin: bool) -> libshare.Message:
    """Who looks again and again gives up when the others have their turn."""
    for _ in range(20000 if spin else 0):
        try:
            return consumer.recv(0)
        except libshare.NotReadyError:
            pass
    return consumer.recv()


def _shared_other(address: str, spin: bool) -> None:
    import torch

    import libshare.torch

    client = libshare.connect(address)
    pool = client.pool("bench")
    kind = "spin" if spin else "wait"
    with pool.consumer(f"there/{kind}", writable=True) as rx, pool.producer(f"back/{kind}") as tx:
        tx.send(data=b"ready")
        while True:
            try:
                m = _receive(rx, spin)
            except libshare.PeerGoneError:
                return
            with m:
                tensor = libshare.torch.tensor_of(m.array)
                tx.send(data=_NUMBER.pack(tensor.numel()))
                found = int(tensor[-1])
                torch.cuda.synchronize()
                tx.send(data=_NUMBER.pack(found))
                del tensor


# Each way yields twice: once the other process has been started, as that takes seconds, and what makes
# a round trip: of bytes and of what to fill in; microseconds, and of the whole, elements, and what was
# read.
Trip = Callable[[int, int], tuple[float, float, int, int]]


def _shared(start: Callable[..., Any], pool: libshare.Pool, spin: bool) -> Iterator[Trip | None]:
    import torch

    import libshare.torch

    kind = "spin" if spin else "wait"
    with pool.consumer(f"back/{kind}") as rx, pool.producer(f"there/{kind}") as tx:
        other = start(_shared_other, pool.client.address, spin)
        yield None
        rx.recv().ack()

        def answer() -> int:
            with _receive(rx, spin) as m:
                return _NUMBER.unpack(m.data)[0]

        def trip(size: int, fill: int) -> tuple[float, float, int, int]:
            tensor = libshare.torch.empty(pool, size // 4, torch.int32)
            start = perf_counter()
            tensor.fill_(fill)
            begin = perf_counter()
            tx.send(libshare.array_of(tensor))
            elements = answer()
            took = perf_counter() - begin
            read = answer()
            whole = perf_counter() - start
            torch.cuda.synchronize()
            return took * 1e6, whole * 1e6, elements, read

        yield trip
        tx.close()
        other.join()


def _torch_other(tensors: Any, answers: Any) -> None:
    import torch

    answers.put(0)
    while (tensor := tensors.get()) is not None:
        answers.put(tensor.numel())
        found = int(tensor[-1])
        del tensor
        torch.cuda.synchronize()
        answers.put(found)


def _torch(start: Callable[..., Any]) -> Iterator[Trip | None]:
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    tensors, answers = context.SimpleQueue(), context.SimpleQueue()
    other = start(_torch_other, tensors, answers)
    yield None
    answers.get()

    def trip(size: int, fill: int) -> tuple[float, float, int, int]:
        tensor = torch.empty(size // 4, dtype=torch.int32, device="cuda")
        start = perf_counter()
        tensor.fill_(fill)
        begin = perf_counter()
        tensors.put(tensor)
        elements = answers.get()
        took = perf_counter() - begin
        read = answers.get()
        whole = perf_counter() - start
        torch.cuda.synchronize()
        return took * 1e6, whole * 1e6, elements, read

    yield trip
    tensors.put(None)
    other.join()


def _by_hand_other(tensors: Any, numbers: Any) -> None:
    import torch

    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda", torch.cuda.current_device()), tensors.get())
    by_size = {}
    turn = 0
    numbers[_READ] = turn
    while True:
        turn += 1
        while numbers[_TURN] not in (turn, _END):
            pass
        if numbers[_TURN] == _END:
            return
        size = numbers[_SIZE]
        if size not in by_size:
            by_size[size] = tensors.get()
        event.wait()
        numbers[_FOUND] = int(by_size[size][-1])
        torch.cuda.synchronize()
        numbers[_READ] = turn


def _by_hand(start: Callable[..., Any]) -> Iterator[Trip | None]:
    import torch
    import torch.multiprocessing as multiprocessing

    context = multiprocessing.get_context("spawn")
    tensors, numbers = context.SimpleQueue(), context.RawArray("q", 4)
    numbers[_READ] = _END
    event = torch.cuda.Event(interprocess=True)
    event.record()
    other = start(_by_hand_other, tensors, numbers)
    yield None
    tensors.put(event.ipc_handle())
    by_size: dict[int, torch.Tensor] = {}

    def trip(size: int, fill: int) -> tuple[float, float, int, int]:
        if size not in by_size:
            by_size[size] = torch.empty(size // 4, dtype=torch.int32, device="cuda")
            tensors.put(by_size[size])
        start = perf_counter()
        by_size[size].fill_(fill)
        event.record()
        numbers[_SIZE] = size
        numbers[_TURN] = turn = numbers[_TURN] + 1
        while numbers[_READ] != turn:
            pass
        whole = perf_counter() - start
        torch.cuda.synchronize()
        return whole * 1e6, whole * 1e6, by_size[size].numel(), numbers[_FOUND]

    while numbers[_READ] != 0:
        pass
    yield trip
    numbers[_TURN] = _END
    other.join()


def _alone() -> Iterator[Trip | None]:
    import torch

    yield None

    def trip(size: int, fill: int) -> tuple[float, float, int, int]:
        tensor = torch.empty(size // 4, dtype=torch.int32, device="cuda")
        start = perf_counter()
        tensor.fill_(fill)
        read = int(tensor[-1])
        torch.cuda.synchronize()
        took = (perf_counter() - start) * 1e6
        return took, took, tensor.numel(), read

    yield trip


def _start(function: Callable[..., None], *arguments: Any) -> Any:
    import torch.multiprocessing as multiprocessing

    other = multiprocessing.get_context("spawn").Process(target=function, args=arguments, daemon=True)
    other.start()
    return other


def _round(trip: Trip, size: int, n: int) -> tuple[list[float], list[float]]:
    took, whole = [], []
    for fill in range(n):
        us, whole_us, elements, read = trip(size, fill)
        if (elements, read) != (size // 4, fill):
            raise RuntimeError(f"the other process read {read} in {elements} elements, not {fill} in {size // 4}")
        took.append(us)
        whole.append(whole_us)
    return took, whole


def run(report: Report) -> None:
    import torch

    if not torch.cuda.is_available():
        report.skip("torch finds no GPU")
        return
    rounds, n = (2, 5) if report.quick else (9, 60)
    torch.cuda.init()
    with libshare.connect("embedded") as client:
        pool = client.pool("bench", kind="auto", limit="2GiB")
        if not pool.on_gpu:
            report.skip(f"there is no pool of GPU memory here: {pool.info()['reason']}")
            return
        running = {"": _shared(_start, pool, False), ".spin": _shared(_start, pool, True),
                   "torch": _torch(_start), "event": _by_hand(_start), "alone": _alone()}
        for one in running.values():
            next(one)
        trips = {how: next(one) for how, one in running.items()}
        for size_name, size in _SIZES.items():
            found: dict[str, list[list[float]]] = {how: [] for how in trips}
            whole: dict[str, list[list[float]]] = {how: [] for how in trips}
            for i in range(rounds + 1):
                for how, trip in trips.items():
                    took, of_all = _round(trip, size, n)
                    if i > 0:  # the first is to get everything going
                        found[how].append(took)
                        whole[how].append(of_all)
            theirs = median_of_rounds(found["torch"])
            for how in ("", ".spin"):
                report.times(f"torch-cuda.{size_name}{how}", median_of_rounds(found[how]), "us", theirs, _LEAST)
            both, one_alone = median_of_rounds(whole[".spin"]), median_of_rounds(whole["alone"])
            report.value(f"torch-cuda.{size_name}.whole", both, "us", against=one_alone,
                         compared=f"+{short(both - one_alone)} us", target=f"+{_MORE:g} us", met=both - one_alone <= _MORE)
            report.times(f"torch-cuda.{size_name}.whole.event", both, "us", median_of_rounds(whole["event"]), None)
        trips.clear()
        del trip
        for one in running.values():
            next(one, None)
