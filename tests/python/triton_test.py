# SPDX-License-Identifier: MIT
"""Triton Inference Server reads and writes memory of a pool where it lies: with its own client, against a
stand-in for the server (triton_server.py), in a process of its own, that opens the memory as Triton does.

Over the stand-in for the driver, or with a GPU. Needs tritonclient[http]; tritonclient[grpc] is tried if it is there.
"""

import copy
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import until
from driver import Driver

import libshare

try:
    import tritonclient.http
    from tritonclient.utils import InferenceServerException
except (ImportError, RuntimeError):
    tritonclient = None
try:
    import tritonclient.grpc
except (ImportError, RuntimeError):
    pass

pytestmark = pytest.mark.skipif(tritonclient is None, reason="there is no tritonclient[http] here")
UNIT = 2 << 20


class Endpoint:
    """The stand-in, which can be killed and started again at the same address."""

    def __init__(self, protocol):
        self.protocol, self.listening = protocol, socket.create_server(("127.0.0.1", 0))
        self.start()

    def start(self):
        program = [sys.executable, str(Path(__file__).with_name("triton_server.py")), self.protocol]
        self.process = subprocess.Popen([*program, str(self.listening.fileno())], stdout=subprocess.PIPE, text=True,
                                        pass_fds=[self.listening.fileno()])
        said = self.process.stdout.readline().strip()
        port = self.listening.getsockname()[1] if self.protocol == "http" else said
        self.address = f"127.0.0.1:{port}"

    def client(self):
        return getattr(tritonclient, self.protocol).InferenceServerClient(self.address)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def close(self):
        self.kill()
        self.listening.close()


@pytest.fixture(scope="module", params=["http", "grpc"])
def endpoint(request):
    if not hasattr(tritonclient, request.param):
        pytest.skip("there is no tritonclient[grpc] here")
    e = Endpoint(request.param)
    yield e
    e.close()


@pytest.fixture
def server(endpoint):
    with endpoint.client() as c:
        yield c
        assert registered(c) == []


@pytest.fixture
def pool(client):
    with client.pool("triton", kind="legacy", limit="64MiB", segment_size=UNIT) as p:
        yield p


@pytest.fixture
def regions(server):
    with libshare.triton.Regions(server) as r:
        yield r


def registered(server):
    """The names of what the server has registered."""
    status = server.get_cuda_shared_memory_status()
    return sorted(row["name"] for row in status) if isinstance(status, list) else sorted(status.regions)


def ask(server, regions, x, y, **how):
    return server.infer("add_one", [regions.input("IN", x, **how)], outputs=[regions.output("OUT", y)])


def content(array):
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


def test_a_request_is_read_and_answered_in_the_pool(server, pool, regions):
    x, y = pool.array(np.arange(12, dtype="float32").reshape(3, 4)), pool.zeros((3, 4), "float32")
    result = ask(server, regions, x, y)
    assert content(y).tolist() == (np.arange(12).reshape(3, 4) + 1).tolist()
    assert content(x).tolist() == np.arange(12).reshape(3, 4).tolist()
    assert result.get_output("OUT") is not None and len(registered(server)) == 1
    x.copy_from(np.full((3, 4), 7, "float32"))
    ask(server, regions, x[1:], y[:2])  # parts of it, of the same segment
    assert content(y).tolist() == [[8] * 4, [8] * 4, [9, 10, 11, 12]]
    assert len(registered(server)) == 1


@pytest.mark.parametrize("dtype, datatype", [
    ("bool", "BOOL"), ("int8", "INT8"), ("uint16", "UINT16"), ("int64", "INT64"), ("float16", "FP16"), ("float64", "FP64"),
    ("bfloat16", "BF16")])
def test_datatypes_are_those_of_the_arrays(pool, regions, dtype, datatype):
    a = regions.input("IN", pool.empty((2, 3), dtype))
    assert (a.name(), a.datatype(), list(a.shape())) == ("IN", datatype, [2, 3])


def test_the_model_s_datatype_and_shape_can_be_named(server, pool, regions):
    x, y = pool.array(np.array([1, 2], "int32").view("uint8")), pool.zeros(2, "int32")
    ask(server, regions, x, y, datatype="INT32", shape=(1, 2))
    assert content(y).tolist() == [2, 3]


def test_memory_that_another_process_has_made_is_registered_by_who_looks_it_up(client, server, pool, regions):
    subprocess.run([sys.executable, "-c", f"""if True:
        import libshare, numpy as np
        with libshare.connect({client.address!r}) as c, c.pool("triton") as pool:
            pool.array(np.arange(5)).publish("x", persistent=True)
    """], check=True, timeout=120)
    x, y = client.lookup("x"), pool.zeros(5, "int64")
    ask(server, regions, x, y)
    assert content(y).tolist() == [1, 2, 3, 4, 5]
    client.unpublish("x")


def test_each_segment_is_registered_once_and_as_long_as_it_is_used(client, server, pool, regions):
    first = [pool.zeros(1000, "float32") for _ in range(4)]
    tensors = [regions.input("IN", a) for a in first]
    names = registered(server)
    assert len(names) == 1
    large = [pool.zeros(UNIT * n, "uint8") for n in (2, 3)]  # segments of their own
    tensors += [regions.output("OUT", a) for a in large]
    assert len(registered(server)) == 3 and set(names) < set(registered(server))
    del tensors
    gc.collect()
    regions.input("IN", first[1])  # of one that is registered
    assert len(registered(server)) == 3
    regions.input("IN", pool.zeros(UNIT * 4, "uint8"))
    assert len(registered(server)) == 1
    regions.close()
    assert registered(server) == []
    with pytest.raises(libshare.ClosedError):
        regions.input("IN", first[0])
    regions.close()


def segments(client):
    return [int(row["segment"], 16) for row in client.inspect("segments")]


def test_a_segment_that_is_registered_is_not_given_back(client, server, pool, regions):
    used, free = pool.zeros(UNIT * 2, "uint8"), pool.zeros(UNIT * 3, "uint8")
    registered_one, other = used.info()["segment"], free.info()["segment"]
    regions.input("IN", used)
    used.release()
    free.release()
    del used, free
    gc.collect()
    until(lambda: other not in segments(client))
    assert registered_one in segments(client) and len(registered(server)) == 1
    regions.close()
    until(lambda: registered_one not in segments(client))


def test_a_tensor_keeps_its_memory(server, pool, regions):
    x, y = pool.array(np.arange(100)), pool.zeros(100, "int64")
    inputs, outputs = [regions.input("IN", x)], [regions.output("OUT", y)]
    kept, places = y[...], {x.ptr, y.ptr}
    x.release()
    y.release()
    del x, y
    gc.collect()
    others = [pool.zeros(100, "int64") for _ in range(50)]
    assert not places & {a.ptr for a in others}
    server.infer("add_one", inputs, outputs=outputs)
    assert content(kept).tolist() == list(range(1, 101)) and not any(a.tobytes().strip(b"\0") for a in others)


def test_work_on_the_memory_comes_before_the_request(server, pool, regions):
    driver = Driver()
    stream, also = driver.stream(), driver.stream()
    x, y = pool.empty(100, "uint8", stream=stream), pool.empty(100, "uint8", stream=also)
    tensors = [regions.input("IN", x)]  # its segment is registered, so another thread asks the server for nothing
    y.record_stream(stream)
    for make in (lambda: regions.input("IN", x), lambda: regions.output("OUT", y)):
        go, seen = driver.hold(stream), []
        driver.fill(stream, x, 41)

        def place(make=make, go=go, seen=seen):
            tensors.append(make())
            seen.append(go.is_set())

        thread = threading.Thread(target=place)
        thread.start()
        assert driver.stands_still(stream) and not seen
        go.set()
        thread.join()
        assert seen == [True]
    server.infer("add_one", [tensors[1]], outputs=[tensors[2]])
    assert set(y.tobytes()) == {42}
    x.release()
    y.release()
    del tensors
    regions.close()
    driver.end()


def test_what_a_server_has_forgotten_is_registered_again(endpoint, server, pool, regions):
    x, y = pool.array(np.arange(5)), pool.zeros(5, "int64")
    inputs, outputs = [regions.input("IN", x)], [regions.output("OUT", y)]
    assert regions.renew() == 0
    with endpoint.client() as other:
        other.unregister_cuda_shared_memory()  # all, as if it had been restarted
    with pytest.raises(InferenceServerException, match="Unable to find shared memory region"):
        server.infer("add_one", inputs, outputs=outputs)
    assert regions.renew() == 1
    server.infer("add_one", inputs, outputs=outputs)
    assert content(y).tolist() == [1, 2, 3, 4, 5]
    del inputs, outputs
    gc.collect()
    assert regions.renew() == 0 and registered(server) == []  # what nobody uses any more


def test_a_server_that_is_killed_takes_nothing_with_it(pool):
    endpoint = Endpoint("http")
    x, y = pool.array(np.arange(5)), pool.zeros(5, "int64")
    with endpoint.client() as server, libshare.triton.Regions(server) as regions:
        inputs, outputs = [regions.input("IN", x)], [regions.output("OUT", y)]
        endpoint.kill()
        endpoint.start()
        assert regions.renew() == 1
        server.infer("add_one", inputs, outputs=outputs)
        assert content(y).tolist() == [1, 2, 3, 4, 5]
        endpoint.close()  # and nobody is there when the regions are closed
    del inputs, outputs


def test_memory_that_is_gone_with_its_agent_is_made_and_registered_anew(client, server, pool, regions):
    x, y = pool.array(np.arange(5)), pool.zeros(5, "int64")
    ask(server, regions, x, y)
    os.kill(client.inspect("devices")[0]["agent"], signal.SIGKILL)
    until(lambda: is_refused(regions, x))
    x, y = pool.array(np.arange(7)), pool.zeros(7, "int64")
    ask(server, regions, x, y)
    assert content(y).tolist() == list(range(1, 8)) and len(registered(server)) == 1


def test_what_is_gone_with_its_agent_keeps_nothing_else_from_being_registered_again(client, endpoint, server, pool, regions):
    x = pool.array(np.arange(5))
    gone = regions.input("IN", x)
    os.kill(client.inspect("devices")[0]["agent"], signal.SIGKILL)
    until(lambda: is_refused(regions, x))
    x, y = pool.array(np.arange(7)), pool.zeros(7, "int64")
    inputs, outputs = [regions.input("IN", x)], [regions.output("OUT", y)]
    with endpoint.client() as other:
        other.unregister_cuda_shared_memory()
    assert regions.renew() == 1
    server.infer("add_one", inputs, outputs=outputs)
    assert content(y).tolist() == list(range(1, 8)) and len(registered(server)) == 1 and gone.name() == "IN"


def test_regions_that_nobody_closes_are_unregistered_with_a_warning(server, pool):
    regions = libshare.triton.Regions(server)
    x, y = pool.array(np.arange(5)), pool.zeros(5, "int64")
    inputs, outputs = [regions.input("IN", x)], [regions.output("OUT", y)]
    del regions
    gc.collect()
    server.infer("add_one", inputs, outputs=outputs)
    assert content(y).tolist() == [1, 2, 3, 4, 5] and len(registered(server)) == 1
    with pytest.warns(ResourceWarning, match="segments registered: 1"):
        del inputs, outputs
        gc.collect()
    assert registered(server) == []


def test_of_regions_that_another_thread_drops_it_is_only_told(server, pool):
    kept = [libshare.triton.Regions(server)]
    kept[0].input("IN", pool.zeros(10, "uint8"))
    thread = threading.Thread(target=kept.clear)
    with pytest.warns(ResourceWarning, match="segments registered: 1"):
        thread.start()
        thread.join()
    assert len(registered(server)) == 1
    server.unregister_cuda_shared_memory()


def test_regions_that_nobody_closes_are_unregistered_where_warnings_are_errors(server, pool, monkeypatch):
    regions, told = libshare.triton.Regions(server), []
    regions.input("IN", pool.zeros(10, "uint8"))
    monkeypatch.setattr(sys, "unraisablehook", lambda it: told.append(str(it.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        del regions
        gc.collect()
    assert registered(server) == [] and ["segments registered: 1" in words for words in told] == [True]


def test_a_forked_child_leaves_registered_what_its_parent_has(server, pool, regions, monkeypatch):
    kept = regions.input("IN", pool.zeros(10, "uint8"))
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        with pytest.raises(libshare.ForkedError, match="make others"):
            regions.renew()
        copy.copy(regions).close()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            copy.copy(regions)
    assert told == [] and len(registered(server)) == 1 and kept.name() == "IN"


def is_refused(regions, array):
    """As soon as the broker knows."""
    try:
        regions.input("IN", array)
    except libshare.OwnerDiedError:
        return True
    return False


def test_memory_of_other_kinds_is_refused_with_what_to_do(client, pool, regions):
    for kind, words in (("host", "/dev/shm.*'legacy'.*set_data_from_numpy"), ("vmm", "cudaIpcMemHandle_t.*'vmm'.*'legacy'"),
                        ("mempool", "'mempool'.*to\\(pool\\)"), ("pinned", "'pinned'.*'legacy'.*to\\(pool\\)")):
        with client.pool(kind, kind=kind, limit="8MiB") as other:
            a = other.array(np.arange(3))
            with pytest.raises(libshare.NotSupportedError, match=words):
                regions.input("IN", a)
            regions.input("IN", a.to(pool))


def test_what_cannot_be_asked_for_is_refused(client, server, pool, regions):
    a = pool.zeros((4, 4), "float32")
    for wrong in (a.T, a[:, 1], a[:0]):
        with pytest.raises(ValueError, match="without gaps"):
            regions.input("IN", wrong)
    with pytest.raises(ValueError, match="no complex64"):
        regions.input("IN", pool.zeros(2, "complex64"))
    a.publish("a")
    with client.lookup("a") as b, pytest.raises(ValueError, match="read-only"):
        regions.output("OUT", b)
    client.unpublish("a")
    with pytest.raises(ValueError, match="does not lie in a pool"):
        regions.input("IN", np.arange(3))
    with pytest.raises(TypeError, match="InferenceServerClient"):
        libshare.triton.Regions(client)
    with libshare.triton.Regions(server, device=3) as elsewhere:
        with pytest.raises(InferenceServerException, match="failed to register"):
            elsewhere.input("IN", a)
    assert registered(server) == []


def test_what_the_documents_show_runs(client, server):
    document = Path(__file__).parents[2] / "docs" / "python.md"
    if not document.exists():
        pytest.skip("the documents are not here")
    shown, = [block for block in re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
              if "libshare.triton" in block]
    names = {"libshare": libshare, "np": np, "client": client, "server": server}
    exec(shown.replace('"model"', '"add_one"'), names)
    assert content(names["y"]).tolist() == [[2] * 4] * 3
    for name in ("x", "y", "pool"):
        names[name].close() if name == "pool" else names[name].release()
