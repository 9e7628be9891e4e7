# SPDX-License-Identifier: MIT
"""What the tests start from: a private broker in which nothing may be left, and this process's
descriptors, which must be the same at the end."""

import faulthandler
import gc
import os
import threading

import pytest

import libshare

_said = None


def pytest_configure():
    """Nothing that is written is kept back yet, as pytest does while a test runs."""
    global _said
    _said = os.dup(2)


def pytest_collection_finish():
    """What was imported stays. Without this each gc.collect() of a test looks at all of it, which was
    a quarter of the processor time of these tests."""
    gc.collect()
    gc.freeze()


def patience(seconds=280):
    """From now on: who waits for a condition that never comes is told where."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_said)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Each test has this time for itself: all of a file take as long as the machine lets them."""
    patience()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown():
    """pytest itself ends that when a test fails, which may leave behind what its fixtures wait for."""
    patience()


def descriptors():
    """What is open, by number."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            pass
    return found


def until(condition):
    """Waits for a condition; the time limit is that of the test."""
    while not condition():
        os.sched_yield()


def state_of(task):
    """One letter, as proc(5) has it; None: the process or thread has ended."""
    try:
        with open(f"/proc/{task}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0]
    except OSError:
        return None


def fork():
    """os.fork() while no other thread runs: one that is in malloc() would leave AddressSanitizer's lock of it to
    the child for good."""
    own = str(threading.get_native_id())
    until(lambda: all(state_of(f"self/task/{thread}") in ("S", None)
                      for thread in os.listdir("/proc/self/task") if thread != own))
    return os.fork()


_failed = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture
def broker(request):
    """The client that has the private broker, to ask and to get its address from. In the end this
    process has the descriptors that it had."""
    gc.collect()
    before = descriptors()
    with libshare.connect("embedded", label="owner") as owner:
        yield owner
    if request.node.stash.get(_failed, False):
        return  # its frames are kept for the report, and all that is in them
    gc.collect()
    after = descriptors()
    left = [after[fd] for fd in set(after) - set(before)]
    # a driver that was loaded keeps what it opened
    assert left == [] or "standin" in os.environ.get("LD_LIBRARY_PATH", "")


def end_messages(broker):
    """Ends what producers that are gone have left in queues, for which nobody comes."""
    for row in broker.inspect("channels"):
        try:
            broker.end_channel(row["channel"])
        except FileNotFoundError:  # it is gone by now, or its members go
            pass


@pytest.fixture
def client(broker, request):
    """Another client of it, after which nothing may be left."""
    with libshare.connect(broker.address, label="test") as c:
        yield c
    if request.node.stash.get(_failed, False):
        return
    gc.collect()
    until(lambda: not any(row["label"] != "owner" for row in broker.inspect("clients")))
    until(lambda: end_messages(broker) or broker.inspect("buffers") == [])
    assert broker.inspect("names") == []


@pytest.fixture
def pool(client):
    with client.pool("test", kind="host", limit="64MiB") as p:
        yield p


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Where nothing could run, CTest is to show that as skipped."""
    counts = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == 0 and counts.get("skipped") and not counts.get("passed"):
        session.exitstatus = 77
