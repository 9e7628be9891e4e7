# SPDX-License-Identifier: MIT
"""Ray's actors hand tensors on through a pool. Needs Ray, and torch.

SHARE_TEST_KIND: of the pool, host when it is not set; vmm and mempool need a GPU.
"""

import gc
import os

import numpy as np
import pytest
from conftest import until

import libshare

try:
    import ray

    import libshare.ray
except ImportError:
    ray = None
try:
    import torch
except ImportError:
    torch = None

pytestmark = pytest.mark.skipif(ray is None or torch is None, reason="there is no Ray here, or no torch")
KIND = os.environ.get("SHARE_TEST_KIND", "host")
DEVICE = "cpu" if KIND == "host" else "cuda"
LIMIT = 100  # seconds


@pytest.fixture(scope="module")
def cluster():
    """A pool, and three actors of which the first two make things."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with libshare.connect("embedded") as c, c.pool("ray", kind=KIND, limit="64MiB") as pool:
        libshare.ray.install(pool)
        if KIND == "host":
            libshare.ray.install(pool, "libshare-numpy", data_type=np.ndarray)
        ray.init(num_cpus=1, num_gpus=int(KIND != "host"), include_dashboard=False)

        @ray.remote(num_cpus=0, num_gpus=0 if KIND == "host" else 0.25, enable_tensor_transport=True)
        class Actor:
            @ray.method(tensor_transport="libshare")
            def tensors(self, n):
                with torch.device(DEVICE):
                    return {"x": torch.arange(n), "none": torch.empty(0, 3), "text": "t",
                            "part": torch.eye(4)[:, 1]}

            @ray.method(tensor_transport="libshare")
            def in_the_pool(self):
                import libshare.torch

                self.kept = libshare.torch.empty(libshare.client_of(c_address).pool("ray"), 5, torch.int64)
                self.kept.zero_()
                return self.kept[1:]

            @ray.method(tensor_transport="libshare-numpy" if KIND == "host" else "libshare")
            def arrays(self, n):
                return [np.arange(n), "text"]

            def add(self, things):
                for t in things.values() if isinstance(things, dict) else things:
                    if not isinstance(t, str):
                        t += 1
                return repr(things)

            def address(self, tensor):
                array = libshare.array_of(tensor)
                return array.id, array.offset

            def keep(self, things):
                self.mine = things

            def mine_is(self):
                return repr(self.mine)

            def pid(self):
                return os.getpid()

        c_address = c.address
        actors = [Actor.remote() for _ in range(3)]
        yield c, pool, actors
        ray.shutdown()


def buffers(client):
    """Those in use: what a pool's cache keeps, it keeps whole."""
    return {row["buffer"] for row in client.inspect("buffers") if row["size"] != row["capacity"]}


def nothing_is_left(client, before):
    gc.collect()
    until(lambda: buffers(client) <= before)


def test_tensors_are_handed_on_without_a_copy(cluster):
    client, _, (a, b, _) = cluster
    before = buffers(client)
    ref = a.tensors.remote(4)
    assert "[1, 2, 3, 4]" in ray.get(b.add.remote(ref), timeout=LIMIT)
    here = ray.get(ref, timeout=LIMIT)
    assert here["x"].tolist() == [1, 2, 3, 4] and here["text"] == "t"
    assert here["none"].shape == (0, 3) and here["part"].tolist() == [1, 2, 1, 1]
    here["x"] += 1
    assert "[3, 4, 5, 6]" in ray.get(b.add.remote(ref), timeout=LIMIT)
    assert here["x"].tolist() == [3, 4, 5, 6]
    del here, ref
    nothing_is_left(client, before)


def test_what_lies_in_the_pool_stays_where_it_is(cluster):
    client, _, (a, b, _) = cluster
    ref = a.in_the_pool.remote()
    mine = ray.get(ref, timeout=LIMIT)
    array = libshare.array_of(mine)
    assert array.offset == 8 and ray.get(b.address.remote(ref), timeout=LIMIT) == (array.id, 8)


@pytest.mark.skipif(KIND != "host", reason="NumPy works on host memory")
def test_arrays_of_numpy_have_a_transport_of_their_own(cluster):
    _, _, (a, b, _) = cluster
    assert "array([1, 2, 3]" in ray.get(b.add.remote(a.arrays.remote(3)), timeout=LIMIT)


def test_the_driver_puts_what_actors_get(cluster):
    client, pool, (a, _, _) = cluster
    before = buffers(client)
    t = torch.zeros(3, device=DEVICE)
    ref = ray.put([t], _tensor_transport="libshare")
    assert "[1., 1., 1.]" in ray.get(a.add.remote(ref), timeout=LIMIT)
    assert t.tolist() == [0, 0, 0]  # it was not in the pool: a copy went
    del ref
    nothing_is_left(client, before)


def test_a_target_is_copied_into(cluster):
    _, _, (a, _, _) = cluster
    ref, into = a.in_the_pool.remote(), torch.full((4,), 9, device=DEVICE)
    ray.experimental.set_target_for_ref(ref, [into])
    assert ray.get(ref, timeout=LIMIT) is into and into.tolist() == [0, 0, 0, 0]


def test_what_was_received_outlives_its_sender(cluster):
    client, _, (a, b, c) = cluster
    ref, late = a.tensors.remote(3), a.tensors.remote(5)
    ray.get(b.keep.remote(ref), timeout=LIMIT)
    ray.wait([late], timeout=LIMIT, fetch_local=False)
    pid = ray.get(a.pid.remote(), timeout=LIMIT)
    ray.kill(a)
    until(lambda: pid not in [row["pid"] for row in client.inspect("clients")])
    assert "[0, 1, 2]" in ray.get(b.mine_is.remote(), timeout=LIMIT)
    with pytest.raises(Exception, match="token|died|dead"):
        ray.get(c.add.remote(late), timeout=LIMIT)


def test_what_cannot_be_is_refused(cluster):
    _, pool, _ = cluster
    with pytest.raises(ValueError, match="already"):
        libshare.ray.install(pool)
    with pytest.raises(ValueError, match="data_type"):
        libshare.ray.install(pool, "other", data_type=list)
