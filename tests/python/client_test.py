# SPDX-License-Identifier: MIT
"""Connections, pools, names, tokens, host streams; and processes that fork or end."""

import importlib.metadata
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import libshare
from libshare import _programs
from conftest import fork, state_of, until


def run(program, *arguments, **options):
    """A Python program in a process of its own; what it printed."""
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "BUG" not in done.stderr, done.stderr
    return done.stdout


def test_errors_are_those_that_python_has(client, broker):
    for error, base in [(libshare.TimedOutError, TimeoutError), (libshare.NotFoundError, FileNotFoundError),
                        (libshare.DeniedError, PermissionError), (libshare.OutOfMemoryError, MemoryError),
                        (libshare.ExistsError, FileExistsError), (libshare.InvalidArgumentError, ValueError),
                        (libshare.DisconnectedError, ConnectionError), (libshare.NotReadyError, BlockingIOError),
                        (libshare.NoBrokerError, ConnectionError), (libshare.PeerGoneError, BrokenPipeError)]:
        assert issubclass(error, base) and issubclass(error, libshare.Error)
        assert error.code < 0 and error.name.startswith("SHARE_E")
    with pytest.raises(FileNotFoundError, match="nope") as e:
        client.lookup("nope", timeout=0)
    assert e.value.code == libshare.NotFoundError.code and e.value.name == "SHARE_ENOENT"
    with pytest.raises(libshare.NoBrokerError):
        libshare.connect("/nowhere/broker.sock")
    with pytest.raises(libshare.NoBrokerError, match='"embedded" is a broker of one'):
        libshare.connect("embeded")
    with pytest.raises(TimeoutError, match="nope"):
        client.lookup("nope", timeout=0.01)
    for timeout in (-1, float("nan"), 1e9):
        with pytest.raises(ValueError, match="timeout is seconds"):
            libshare.connect(broker.address, timeout=timeout)
    with libshare.connect(broker.address, timeout=60) as c:
        c.ping()
    with pytest.raises(libshare.NotFoundError):
        client.pool("nope", create=False)
    client.pool("there", kind="host")
    with pytest.raises(libshare.ExistsError):
        p = client.pool("there", kind="host")
        client.pool("there", create=True)
    with pytest.raises(libshare.InvalidArgumentError):
        client.pool("x", kind="cheese")
    for wrong in ["1.5.2GiB", "GiB", -1, "-3", 1 << 63]:
        with pytest.raises(ValueError):
            client.pool("x", limit=wrong)
    with pytest.raises(ValueError):
        client.pool("x", reuse="never")
    with pytest.raises(ValueError, match="huge_pages"):
        client.pool("x", huge_pages="never")
    for wrong in ["near", -1, 1024, None]:
        with pytest.raises(ValueError, match="numa"):
            client.pool("x", numa=wrong)
    with client.pool("spread", kind="host", prefault="1MiB", huge_pages="advise", numa="interleave") as p:
        assert "huge pages" in p.info()["reason"] and "spread over" in p.info()["reason"]
    for timeout in (-1, float("nan"), "soon"):
        with pytest.raises((ValueError, TypeError)):
            client.lookup("x", timeout=timeout)
    for mode in ("w", "", 3, None, "readwrite"):
        with pytest.raises(ValueError):
            client.lookup("x", mode)
    with pytest.raises(TypeError):
        client.lookup()
    with pytest.raises(TypeError):
        client.lookup("x", nope=1)


def test_errors_are_called_as_programs_catch_them():
    for name in libshare.__all__:
        thing = getattr(libshare, name)
        if isinstance(thing, type) and issubclass(thing, libshare.Error):
            assert thing.__module__ == "libshare", name
            assert pickle.loads(pickle.dumps(thing("why"))).args == ("why",)


def test_a_time_limit_that_is_none_is_said_to_be(client):
    with pytest.raises(TypeError, match="^a time limit is a number of seconds.* not '1'"):
        client.lookup("a", timeout="1")


def test_a_broker_that_is_not_there_is_not_waited_for(tmp_path):
    with pytest.raises(libshare.NoBrokerError, match="start share-broker"):
        libshare.connect(tmp_path / "none", timeout=3600)


def test_names_are_texts(client, pool):
    a = pool.zeros(1)
    a.publish("x")
    for use in (client.lookup, client.lookup_async, client.unpublish, client.names, client.inspect, client.end_channel,
                a.publish):
        for wrong in (3, None, b"x"):
            with pytest.raises(TypeError, match=f"a name is a text, not {wrong}"):
                use(wrong)
        with pytest.raises(ValueError, match="NUL in the name"):
            use("x\0y")
    client.unpublish("x")


def test_what_was_called_otherwise_goes_on_for_a_version_and_says_so(client, pool):
    def warned(use):
        with pytest.warns(DeprecationWarning, match="now"):
            return use()

    for before, now in [("NotFound", "NotFoundError"), ("DeviceFailed", "DeviceError"), ("Closed", "ClosedError"),
                        ("Interrupted", "WaitInterruptedError"), ("SystemCallFailed", "SystemCallError")]:
        assert warned(lambda: getattr(libshare, before)) is getattr(libshare, now)
    errors = [c for c in vars(libshare).values() if isinstance(c, type) and issubclass(c, libshare.Error)]
    assert len(errors) == 24 and all(c.__name__.endswith("Error") for c in errors)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        libshare.Nothing
    with warned(lambda: client.worker("s", pool)) as worker, warned(lambda: client.service("s", pool)) as caller:
        call = caller.start(meta=1)
        worker.recv().reply(meta=2)
        assert call.finish().meta == 2
    fence = client.record()
    assert warned(lambda: client.query(fence)) is True
    warned(lambda: client.wait(fence))
    warned(lambda: client.synchronize(fence, 1))


def test_a_broker_that_hangs_is_named_to_who_connects_with_a_time_limit(broker):
    pid = broker.inspect("status")["pid"]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T")  # a signal is taken some time after it was sent
    try:
        for timeout in (0, 0.05):
            with pytest.raises(libshare.TimedOutError, match=rf"process {pid} \(.*state T"):
                libshare.connect(broker.address, timeout=timeout)
    finally:
        os.kill(pid, signal.SIGCONT)
    broker.ping()


def test_pools_say_what_they_are(client):
    with client.pool("p", kind="host", limit="8MiB", segment_size="1MiB", alignment=4096, reuse="clean") as p:
        info = p.info()
        assert (info["name"], info["kind"], info["limit"], info["segment_size"]) == ("p", "host", 8 << 20, 1 << 20)
        assert info["alignment"] == 4096 and info["reuse"] == "clean" and info["device"] is None
        assert p.alloc(10).ptr % 4096 == 0 and p.alloc(10, alignment=65536).ptr % 65536 == 0
        assert (p.name, p.kind, p.on_gpu) == ("p", "host", False)
        with client.pool("p") as again:
            assert again.info()["limit"] == 8 << 20
    for use in (p.info, p.stats, lambda: p.alloc(1), lambda: p.empty(1), lambda: p.set_cache(0)):
        with pytest.raises(libshare.ClosedError):
            use()
    p.close()


def test_a_pool_tells_apart_what_is_used_and_what_is_kept(broker, client, pool):
    def stats():
        found = pool.stats()
        (row,) = [row for row in broker.inspect("pools") if row["pool"] == "test"]
        assert row["used"] == found["used"] + found["kept"]  # nobody else uses it
        assert row["buffers"] == found["used_buffers"] + found["kept_buffers"]
        return found["used"], found["used_buffers"], found["kept"]

    assert stats() == (0, 0, 0) and pool.stats()["cache"] == 4 << 20
    a = pool.zeros((1000, 1000), "uint8")
    view = np.asarray(a)
    assert stats() == (1 << 20, 1, 0)
    del a
    assert stats() == (1 << 20, 1, 0)
    del view
    assert stats() == (0, 0, 1 << 20)
    # a message has its memory until it is acknowledged
    with pool.consumer("c") as rx, pool.producer("c") as tx:
        tx.send(pool.zeros((1000, 1000), "uint8"))
        assert stats()[:2] == (1 << 20, 1)
        rx.recv().ack()
        tx.drain()
        until(lambda: stats()[:2] == (0, 0))
    # what another has allocated is the other's
    with libshare.connect(client.address) as other, other.pool("test", create=False) as its:
        b = its.empty(10)
        b.publish("b")
        c = client.lookup("b")
        assert pool.stats()["used"] == 0 and its.stats()["used"] == 512
        del b, c
        assert its.stats()["used"] == 0  # the name has it
        other.unpublish("b")
    pool.set_cache(0)
    assert pool.stats() == {"used": 0, "kept": 0, "cache": 0, "used_buffers": 0, "kept_buffers": 0}


def test_names_have_versions_and_carry_their_tensor(client, pool):
    x = np.arange(40, dtype=np.float32).reshape(4, 10)
    a = pool.array(x)
    first = a[1:, ::3].publish("a/x")
    second = a.T.publish("a/y", persistent=True)
    assert 0 < first < second
    found = client.lookup("a/x")
    assert np.array_equal(np.asarray(found), x[1:, ::3]) and found.version == first
    assert np.array_equal(np.asarray(client.lookup("a/y")), x.T)
    assert [n.name for n in client.names("a/")] == ["a/x", "a/y"] and client.names("b") == []
    name = client.names("a/y")[0]
    assert name.version == second and name.buffer == a.id and name.persistent and name.pool == "test"
    with pytest.raises(libshare.ExistsError):
        a.publish("a/x", exclusive=True)
    with pytest.raises(libshare.BusyError):
        a.publish("a/x", expected_version=second)
    third = a.publish("a/x", expected_version=first, mode="r")
    assert third > second
    with pytest.raises(libshare.DeniedError):
        client.lookup("a/x", "rw")
    client.unpublish("a/x")
    client.unpublish("a/y")
    with pytest.raises(libshare.NotFoundError):
        client.unpublish("a/x")


def test_a_lookup_waits_for_the_name(client, broker, pool):
    found = []
    waits = threading.Thread(target=lambda: found.append(broker.lookup("late", timeout=None)))
    waits.start()
    a = pool.array(b"late")
    a.publish("late")
    waits.join()
    assert bytes(found.pop()) == b"late"
    client.unpublish("late")


def test_tokens_carry_the_tensor_once(client, broker, pool):
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    token = pool.array(x)[:, 1:].export()
    assert len(token) == 32
    got = broker.import_(token)
    assert np.array_equal(np.asarray(got), x[:, 1:]) and got.readonly
    with pytest.raises(libshare.NotFoundError):
        broker.import_(token)
    token = pool.array(x).export(mode="rw", uses=0, timeout=1000)
    assert not broker.import_(token).readonly and broker.import_(token, mode="r").readonly
    client.revoke(token)
    with pytest.raises(libshare.NotFoundError):
        broker.import_(token)
    with pytest.raises(libshare.NotFoundError):
        client.revoke(token)
    for wrong in (b"short", bytes(33)):
        with pytest.raises(ValueError):
            broker.import_(wrong)
    with pytest.raises(TypeError):
        broker.import_("x" * 32)
    for wrong in (dict(uses=-1), dict(timeout=-1), dict(timeout=1e9), dict(mode="x"), dict(timeout=0)):
        with pytest.raises(ValueError):
            pool.empty(1).export(**wrong)
    del got


def test_monitor_tells_what_happens(client, broker, pool):
    assert [e["action"] for e in broker.monitor(prefix="monitored/")] == ["start"]
    assert broker.monitor(prefix="monitored/", timeout=0) == []
    a = pool.empty(10)
    a.publish("other/name")
    a.publish("monitored/name")
    e, = broker.monitor(prefix="monitored/", timeout=30)
    assert (e["action"], e["name"], e["pool"], e["label"]) == ("publish", "monitored/name", "test", "test")
    assert broker.monitor(prefix="monitored/", timeout=0.01) == []
    for wrong, error in ((dict(timeout=-1), ValueError), (dict(user=-1), OverflowError), (dict(user="x"), TypeError),
                         (dict(pool=3), TypeError), (dict(prefix="x" * 300), libshare.InvalidArgumentError)):
        with pytest.raises(error):
            broker.monitor(**wrong)
    broker.unpublish("other/name")
    broker.unpublish("monitored/name")
    del a


def test_inspect_shows_what_the_broker_knows(client, pool):
    a = pool.empty(10)
    assert client.inspect()["version"] == libshare.__version__
    assert "test" in [p["pool"] for p in client.inspect("pools")]
    assert {c["label"] for c in client.inspect("clients")} == {"owner", "test"}
    assert len(client.inspect("buffers")) == 1
    with pytest.raises(libshare.InvalidArgumentError):
        client.inspect("cheese")
    del a


def test_what_reports_name_can_be_ended(client, broker, pool):
    a = pool.empty(10)
    tokens = [a.export(), a.export(), a.export()]
    rows = client.inspect("tokens")
    assert len(rows) == 3
    client.revoke(tokens[0])
    ends = client.inspect("tokens")
    client.revoke(ends[0]["token"])
    client.revoke(int(ends[1]["token"], 16))
    assert client.inspect("tokens") == []
    for token in tokens:
        with pytest.raises(libshare.NotFoundError):
            broker.import_(token)
    with pytest.raises(libshare.NotFoundError):
        client.revoke(ends[0]["token"])
    other = libshare.connect(broker.address, label="other")
    number = next(row["client"] for row in client.inspect("clients") if row["label"] == "other")
    client.drop(number)
    with pytest.raises(libshare.DisconnectedError):
        other.ping()
    until(lambda: all(row["client"] != number for row in client.inspect("clients")))
    with pytest.raises(libshare.NotFoundError):
        client.drop(number)
    other.close()
    with pytest.raises(libshare.NotSupportedError):
        client.reload()
    a.release()


def test_the_configuration_is_read_again(tmp_path):
    file = tmp_path / "broker.json"
    file.write_text('{"pools": [{"name": "default", "kind": "host", "limit": "256MiB"}]}')
    with libshare.connect("embedded", config=file) as c:
        assert c.reload() == []
        file.write_text('{"pools": [{"name": "default", "kind": "host", "limit": "512MiB"}]}')
        assert {"key": 'pools["default"].limit', "change": "256MiB -> 512MiB", "now": True} in c.reload()
        file.write_text("{")
        with pytest.raises(libshare.InvalidArgumentError):
            c.reload()


def test_the_broker_is_upgraded(client, pool):
    with pool.alloc(64) as a:
        before = client.inspect("status")["pid"]
        try:
            done = client.upgrade()
        except libshare.NotSupportedError as error:
            # in a wheel
            assert "one file" in str(error) and client.inspect("status")["pid"] == before
        else:
            assert done["pid"] == client.inspect("status")["pid"] != before
            assert done["from"] == done["to"] == client.inspect("status")["version"]
        a.publish("outlives-an-upgrade")
        client.unpublish("outlives-an-upgrade")


def test_host_streams_order_what_is_shared(client, broker, pool):
    gate = threading.Event()
    with client.host_stream() as s:
        a = pool.empty(4, "int32", stream=s)
        s.launch(gate.wait)
        s.launch(lambda: np.asarray(a).fill(7))
        a.publish("x", stream=s)
        with pytest.raises(TimeoutError):
            broker.lookup("x", timeout=0.01)
        with broker.host_stream() as other:
            b = broker.lookup("x", timeout=1, stream=other)
            seen = []
            other.launch(lambda: seen.append(int(np.asarray(b).sum())))
            assert not b.status()
            gate.set()
            other.synchronize()
            assert seen == [28] and b.status()
            b.release()
        a.release()
    for use in (lambda: s.launch(print), s.synchronize):
        with pytest.raises(libshare.ClosedError):
            use()
    with pytest.raises(libshare.ClosedError):
        pool.alloc(1, stream=s)
    with pytest.raises(TypeError):
        client.host_stream().launch(3)
    client.unpublish("x")


def test_a_host_stream_ends_by_its_own_function(client):
    ended = threading.Event()
    s = client.host_stream()

    def last(s=s):
        s.close()
        ended.set()

    s.launch(last)
    del s, last
    assert ended.wait()


def test_what_a_host_stream_does_wrong_is_told(client, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda e: told.append(e.exc_type))
    with client.host_stream() as s:
        s.launch(lambda: 1 / 0)
        s.synchronize()
    assert told == [ZeroDivisionError]


def test_streams_of_all_frameworks_are_understood(client, pool):
    class Has:
        def __init__(self, **attributes):
            self.__dict__.update(attributes)

    class Protocol:
        def __cuda_stream__(self):
            return (0, 0)

    import ctypes

    for stream in (None, 0, Has(cuda_stream=0), Has(ptr=0), Has(handle=0), Has(handle=ctypes.c_void_p(None)), Protocol()):
        pool.alloc(1, stream=stream).release(stream=stream)
    # host memory has no CUDA streams
    for stream in (1, Has(cuda_stream=4096), np.uint64(4096)):
        with pytest.raises(libshare.InvalidArgumentError):
            pool.alloc(1, stream=stream)
    for stream in ("x", 1.5, b"x", object(), Has(ptr="x"), -1, 1 << 70, Has(__cuda_stream__=3)):
        with pytest.raises((TypeError, ValueError)):
            pool.alloc(1, stream=stream)


def test_control_c_ends_a_wait(broker):
    program = """
import libshare, sys
c = libshare.connect(sys.argv[1])
try:
    print("waits", flush=True)
    c.lookup("never", timeout=None)
except KeyboardInterrupt:
    print("interrupted")
"""
    waits = subprocess.Popen([sys.executable, "-c", program, broker.address], stdout=subprocess.PIPE, text=True)
    assert waits.stdout.readline() == "waits\n"
    waits.send_signal(signal.SIGINT)
    assert waits.communicate()[0] == "interrupted\n" and waits.returncode == 0


def test_closing_ends_the_waits_of_others(client, broker):
    c = libshare.connect(broker.address)
    seen = []

    def wait():
        try:
            c.lookup("never", timeout=None)
        except libshare.ClosedError as e:
            seen.append(e)

    t = threading.Thread(target=wait)
    t.start()
    c.close()
    t.join()
    assert len(seen) == 1


def test_objects_in_a_forked_child_raise_forked(client, pool):
    a = pool.array(np.arange(4))
    s = client.host_stream()
    said = a.id, a.offset, a.version, a.shape, a.client
    pool_said = pool.name, pool.kind, pool.info(), pool.on_gpu
    child = fork()
    if child == 0:
        uses = (client.ping, lambda: client.lookup("x"), lambda: pool.alloc(1), lambda: memoryview(a), lambda: a[0],
                lambda: a.__dlpack__(), lambda: a.publish("x"), lambda: a.export(), lambda: s.launch(print),
                lambda: a.tobytes(), lambda: a.ptr, lambda: np.asarray(a), client.host_stream, lambda: client.names())
        failed = 0
        for use in uses:
            try:
                use()
                failed += 1
            except libshare.ForkedError:
                pass
        # what needs no connection works, and the child can connect for itself
        failed += (a.id, a.offset, a.version, a.shape, a.client) != said
        failed += (pool.name, pool.kind, pool.info(), pool.on_gpu) != pool_said
        with libshare.connect(client.address) as own:
            with own.pool(pool.name, create=False) as p:
                failed += bytes(p.array(b"child")) != b"child"
        a.release()
        s.close()
        pool.close()
        client.close()
        for closed in (lambda: client.address, lambda: pool.name, lambda: a.id):
            try:
                closed()
                failed += 1
            except libshare.ClosedError:
                pass
        os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.asarray(a).sum() == 6
    client.ping()
    s.close()


def test_an_interpreter_that_ends_gives_all_back(broker):
    run("""
import libshare, numpy, sys, threading
c = libshare.connect(sys.argv[1])
p = c.pool("p", kind="host")
a = p.array(numpy.arange(10))
x = numpy.asarray(a)
s = c.host_stream()
a.publish("x")
b = c.lookup("x", stream=s)
cycle = [a, b]; cycle.append(cycle)
threading.Thread(target=threading.Event().wait, daemon=True).start()
""", broker.address)
    until(lambda: broker.inspect("buffers") == [] and len(broker.inspect("clients")) == 1)
    assert broker.inspect("names") == []


def test_a_private_broker_ends_with_its_program():
    address = run("import libshare; c = libshare.connect('embedded'); print(c.address)").strip()
    until(lambda: not os.path.exists(address))


def test_modules_for_frameworks_are_imported_when_they_are_used():
    run('''if True:
        import sys
        import libshare
        assert "libshare.weights" not in sys.modules
        assert libshare.weights.attach_weights
        for module, package in (("arrow", "pyarrow"), ("torch", "torch"), ("cupy", "cupy"), ("numba", "numba"),
                                ("rmm", "rmm")):
            sys.modules[package] = None
            for use in (f"libshare.{module}", f"from libshare import {module}", f"import libshare.{module}"):
                try:
                    exec(use)
                except ModuleNotFoundError as e:
                    assert "import" in use and e.name == package, e
                except AttributeError as e:
                    assert use == f"libshare.{module}", e
                    assert str(e) == f"{use} takes {package}, which is not installed", e
                    assert not hasattr(libshare, module)
                else:
                    raise AssertionError(use)
    ''')


def answers(address):
    try:
        libshare.connect(address).close()
    except libshare.NoBrokerError:
        return False
    return True


def program(name):
    """Of the build, where CTest says; else of the package that is tested."""
    return os.path.join(os.environ.get("SHARE_TEST_BIN", os.path.dirname(_programs.path(name))), name)


def test_a_broker_that_is_stopped_says_so_before(tmp_path):
    address = str(tmp_path / "s")
    broker = subprocess.Popen([program("share-broker"), "--socket", address, "--drain-ms", "60000"])
    until(lambda: answers(address))
    with libshare.connect(address) as c:
        a = c.pool("default").array(np.arange(10))
        assert c.ending() == 0
        broker.terminate()
        until(lambda: c.ending() > 0)
        assert c.ending() <= 60
        with pytest.raises(libshare.DisconnectedError, match="about to end"):
            c.pool("new", kind="host")
        a.release()
    assert broker.wait() == 0


def test_a_socket_is_named_by_whatever_is_a_path(broker):
    for address in (broker.address, pathlib.Path(broker.address), os.fsencode(broker.address)):
        with libshare.connect(address) as c:
            assert c.address == broker.address


def test_without_a_broker_memory_stays_and_calls_say_so(broker):
    c = libshare.connect(broker.address)
    a = c.pool("p", kind="host").array(np.arange(10))
    started = c.lookup_async("late")
    broker.close()
    with pytest.raises(libshare.DisconnectedError, match="it ended with the connection"):
        started.result(None)
    for use in (c.ping, lambda: c.lookup("x", timeout=None), lambda: a.publish("x")):
        with pytest.raises(libshare.DisconnectedError):
            use()
    assert np.asarray(a).sum() == 45
    a.release()
    c.close()


def test_the_programs_of_the_package_run():
    from libshare import _programs

    if not os.path.exists(_programs.path("share-run")):
        pytest.skip("not from a wheel")
    folder = os.path.dirname(sys.executable)
    for program in ("share-run", "sharectl", "share-broker"):
        said = subprocess.run([os.path.join(folder, program), "--version"], stdout=subprocess.PIPE, text=True, check=True)
        assert said.stdout == f"{program} {libshare.__version__}\n"
    said = subprocess.run([os.path.join(folder, "share-run"), "--", sys.executable, "-c",
                           "import libshare; print(libshare.connect().pool('p', kind='host').alloc(3).nbytes)"],
                          stdout=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin"}, check=True)
    assert said.stdout == "3\n"


def test_a_wheel_has_the_notices_of_what_is_in_it():
    """Of each library beside the programs, of libevent, which is in the broker, and all terms in full."""
    try:
        wheel = importlib.metadata.distribution("libshare")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not from a wheel")
    bundled = [f.name for f in wheel.files if f.parts[0] == "libshare.libs"]
    assert bundled
    notices = {f.stem: f.read_text() for f in wheel.files if f.parent.name == "licenses"}
    for library in {re.split(r"[-.]", name)[0] for name in bundled} | {"libevent"}:
        assert re.search("copyright", notices[library], re.IGNORECASE), library
        for text in re.findall(r"/usr/share/common-licenses/([A-Z][\w.-]*\w)", notices[library]):
            assert text in notices
    assert {f"{name}.txt" for name in notices} - {"LICENSE.txt"} | {"LICENSE"} == set(wheel.metadata.get_all("License-File"))


def test_import_costs_no_framework():
    said = run("import libshare, sys; print([m for m in ('numpy', 'torch', 'cupy', 'asyncio') if m in sys.modules])")
    assert said == "[]\n"
