# SPDX-License-Identifier: MIT
"""Calls in random order over all objects, open and closed, with arguments right and wrong: whatever
comes of it is an exception of ours or of Python's, no crash, and nothing is left in the end.

$SHARE_FUZZ_SEED names another seed than the fresh one, $SHARE_FUZZ_STEPS how many steps.
"""

import gc
import os
import pickle
import random

import numpy as np
import pytest

import libshare
from conftest import end_messages, patience, until

EXPECTED = (libshare.Error, ValueError, TypeError, BufferError, IndexError, AttributeError, OverflowError)
KINDS = [kind for kind in os.environ.get("SHARE_TEST_KINDS", "host").split(",")]


def from_dlpack(array):
    """NumPy has a RuntimeError for a dtype that it has not."""
    try:
        return np.from_dlpack(array)
    except RuntimeError:
        return None


class World:
    """Objects, and what is done with them."""

    def __init__(self, client, kind, seed):
        self.random = random.Random(seed)
        self.kind = kind
        self.address = client.address
        self.things = []
        self.names = ["a", "b", "c/d", ""]
        self.tokens = [b"", bytes(32), b"x" * 32]

    def of(self, *kinds):
        """One of the objects of these types; now and then something else, or nothing."""
        if self.random.random() < 0.03:
            return self.random.choice([None, 3, "x", b"bytes", 1.5, (), object()])
        found = [t for t in self.things if isinstance(t, kinds)]
        return self.random.choice(found) if found else None

    def array(self):
        return self.of(libshare.Array)

    def several(self):
        """As send() takes them: a list or a dict, of 0 to 5, among which one may be twice."""
        arrays = [self.array() for _ in range(self.random.choice([0, 1, 2, 2, 3, 3, 5]))]
        if self.random.random() < 0.5:
            return arrays
        return {self.random.choice(["a", "b", "c", "ü" * 90, "", 3]): a for a in arrays}

    def stream(self):
        r = self.random.random()
        if r < 0.7:
            return {}
        if r < 0.85:
            return {"stream": None}
        return {"stream": self.of(libshare.HostStream)}

    def timeout(self):
        return self.random.choice([0, 0, 0.001, -1, "x"])

    def name(self):
        return self.random.choice(self.names)

    def shape(self):
        return self.random.choice([0, 1, 7, (3, 4), (2, 3, 5), (), (0, 3), (1 << 40,), (-1,), "x", [2, 2]])

    def dtype(self):
        return self.random.choice(["uint8", "float32", np.int16, np.dtype("f8"), "bfloat16", "complex64", "nope", 3])

    def key(self):
        return self.random.choice([0, -1, 5, np.s_[1:], np.s_[::-1], np.s_[..., 0], None, (0, 0), "x", np.s_[:, 1], 1.5])

    def step(self):
        choose = self.random
        actions = [
            lambda: libshare.connect(self.address),
            lambda: self.of(libshare.Client).pool("fuzz", kind=self.kind, limit="16MiB"),
            lambda: self.of(libshare.Client).pool(self.name(), kind=self.kind, create=choose.choice([True, False])),
            lambda: self.of(libshare.Client).host_stream(),
            lambda: self.of(libshare.Client).lookup(self.name(), choose.choice(["r", "rw"]), timeout=self.timeout(), **self.stream()),
            lambda: self.of(libshare.Client).lookup_async(self.name(), timeout=0.01),
            lambda: self.of(libshare.Client).watch(self.name()),
            lambda: self.of(libshare.Pool).caller("s"),
            lambda: self.of(libshare.Pool).worker("s"),
            lambda: self.of(libshare.Client).names(self.name()) and None,
            lambda: self.of(libshare.Client).inspect(choose.choice(["status", "buffers", "channels", "x"])) and None,
            lambda: self.of(libshare.Client).import_(choose.choice(self.tokens), **self.stream()),
            lambda: self.of(libshare.Client).revoke(choose.choice(self.tokens)),
            lambda: self.of(libshare.Client).unpublish(self.name()),
            lambda: self.of(libshare.Client).dispatch() and None,
            lambda: self.of(libshare.Client).record(**self.stream()),
            lambda: self.of(libshare.Fence).query(client=self.of(libshare.Client)) and None,
            lambda: self.of(libshare.Fence).synchronize(self.timeout()),
            lambda: self.of(libshare.Pool).empty(self.shape(), self.dtype(), **self.stream()),
            lambda: self.of(libshare.Pool).zeros(self.shape(), self.dtype()),
            lambda: self.of(libshare.Pool).alloc(choose.choice([0, 1, 5000, 1 << 50, -1])),
            lambda: self.of(libshare.Pool).array(choose.choice([b"bytes", np.eye(3), self.array(), 3])),
            lambda: self.of(libshare.Pool).producer(choose.choice("pq"), when_full="fail", mode=choose.choice([None, "queue"]), history=choose.choice([0, 0, 3])),
            lambda: self.of(libshare.Pool).consumer(choose.choice("pq"), from_=choose.choice(["newest", "oldest"]), writable=choose.random() < 0.1),
            lambda: self.of(libshare.Pool).producer("several", when_full="fail", buffers=choose.choice([3, 3, 3, 2, 33])),
            lambda: self.of(libshare.Pool).consumer("several", buffers=choose.choice([3, 3, 3, 1])),
            lambda: self.of(libshare.Pool).set_cache(choose.choice([0, 1 << 20])),
            lambda: self.of(libshare.Pool).stats() and None,
            lambda: self.array()[self.key()],
            lambda: self.array().reshape(-1),
            lambda: self.array().reshape(self.shape()),
            lambda: self.array().view(self.dtype()),
            lambda: self.array().T,
            lambda: self.array().as_strided(self.shape(), (1,), self.dtype(), choose.randrange(9)),
            lambda: memoryview(self.array()),
            lambda: np.asarray(self.array()),
            lambda: from_dlpack(self.array()),
            lambda: self.array().__dlpack__(max_version=choose.choice([None, (1, 0)]), stream=choose.choice([None, 1, -1, 0])),
            lambda: self.array().__cuda_array_interface__ and None,
            lambda: self.array().tobytes(**self.stream()) and None,
            lambda: self.array().copy_from(choose.choice([b"x", np.eye(3), self.array()])),
            lambda: self.array().publish(self.name(), persistent=False, **self.stream()) and None,
            lambda: self.tokens.append(self.array().export(uses=choose.randrange(3), mode=choose.choice(["r", "rw"]))),
            lambda: pickle.loads(pickle.dumps(self.array())),
            lambda: setattr(self.array(), "metadata", choose.choice([None, {"x": 1}, [1], 3])),
            lambda: self.array().metadata and None,
            lambda: self.array().info() and None,
            lambda: os.close(self.array().recipe()["fd"]),
            lambda: self.array().status() and None,
            lambda: self.array().record_stream(self.of(libshare.HostStream)),
            lambda: self.array().release(**self.stream()),
            lambda: self.of(libshare.Producer).send(self.array(), meta=choose.choice([None, {"n": 1}, object()]), give=choose.random() < 0.3, **self.stream()),
            lambda: self.of(libshare.Producer).send(self.several(), meta=choose.choice([None, {"n": 1}]), give=choose.random() < 0.3, **self.stream()),
            lambda: self.of(libshare.Producer).send_many([self.several(), (self.several(), {"n": 1}), self.array()], timeout=0) and None,
            lambda: self.of(libshare.Producer).send_many([self.array(), (self.array(), 1)], timeout=0) and None,
            lambda: self.of(libshare.Producer).flush(0),
            lambda: self.of(libshare.Producer).drain(0),
            lambda: self.of(libshare.Producer).take_back(),
            lambda: self.of(libshare.Consumer, libshare.Worker).recv(self.timeout(), **self.stream()),
            lambda: self.of(libshare.Consumer, libshare.Producer).stats() and None,
            lambda: self.of(libshare.Consumer, libshare.Producer, libshare.Caller, libshare.Client).fileno() and None,
            lambda: self.of(libshare.Message).array,
            lambda: self.things.extend(found.values() if isinstance(found := self.of(libshare.Message).arrays, dict) else found),
            lambda: self.of(libshare.Message).meta and None,
            lambda: self.of(libshare.Message).data and None,
            lambda: self.of(libshare.Message).ack(**self.stream()),
            lambda: self.of(libshare.Message).reject(**self.stream()),
            lambda: self.of(libshare.Message).reply(self.array(), **self.stream()),
            lambda: self.of(libshare.Message).status(),
            lambda: self.of(libshare.Caller).start(self.array(), **self.stream()),
            lambda: self.of(libshare.Caller).call(self.array(), timeout=self.timeout()),
            lambda: self.of(libshare.Pending).finish(self.timeout(), **self.stream()),
            lambda: self.of(libshare.Pending).cancel(),
            lambda: self.of(libshare.Watch).next(self.timeout()) and None,
            lambda: self.of(libshare.Operation).result(self.timeout()),
            lambda: self.of(libshare.HostStream).launch(lambda: None),
            lambda: self.of(libshare.HostStream).synchronize(self.timeout()),
            lambda: repr(choose.choice(self.things)) and None,
            lambda: self.of(libshare.Client, libshare.Pool, libshare.Producer, libshare.Consumer, libshare.Caller,
                            libshare.Worker, libshare.Watch, libshare.Operation, libshare.HostStream).close(),
            lambda: self.things.pop(choose.randrange(len(self.things))) and None,
            lambda: self.things.pop(choose.randrange(len(self.things))) and None,
        ]
        try:
            made = choose.choice(actions)()
            if made is not None:
                self.things.append(made)
        except EXPECTED:
            pass
        if len(self.things) > 60:
            del self.things[choose.randrange(60)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2, "fresh"])
def test_calls_in_any_order(broker, kind, seed):
    if seed == "fresh":
        seed = int(os.environ.get("SHARE_FUZZ_SEED", random.randrange(1 << 32)))
    steps = int(os.environ.get("SHARE_FUZZ_STEPS", 2000))
    print(f"SHARE_FUZZ_SEED={seed}")
    libshare.set_pickle_timeout(1)  # one that cannot be unpickled outlives its client until then
    world = World(broker, kind, seed)
    world.things += [c := libshare.connect(broker.address), c.pool("fuzz", kind=kind, limit="16MiB")]
    for n in range(steps):
        if n % 1000 == 0:
            patience()  # a long run is not one that hangs
        world.step()
        if not any(isinstance(t, libshare.Pool) and not t.closed for t in world.things):
            world.things += [c := libshare.connect(broker.address), c.pool("fuzz", kind=kind, limit="16MiB")]
    world.things.clear()
    del world, c
    libshare.client_of(broker.address).close()
    gc.collect()
    until(lambda: len(broker.inspect("clients")) == 1)
    # what members that are gone leave behind is looked through a little at each turn
    until(lambda: end_messages(broker) or (broker.inspect("buffers") == [] and broker.inspect("channels") == []))
