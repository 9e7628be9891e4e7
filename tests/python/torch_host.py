# SPDX-License-Identifier: MIT
"""What the tests of libshare.torch.install() with a pool of host memory share."""

import multiprocessing.forkserver
import multiprocessing.resource_sharer
import multiprocessing.resource_tracker
import os

import pytest

import libshare

try:
    import torch

    import libshare.torch as lt
except ImportError:
    torch = lt = None
needs_torch = pytest.mark.skipif(torch is None, reason="there is no torch here")

LIMIT = 240  # seconds; only ends a test that has failed
N = 100_000
multiprocessing.resource_tracker.ensure_running()
if torch is not None:
    torch.set_num_threads(1)  # OpenMP does not survive a fork, with torch alone as well


@pytest.fixture(scope="module", autouse=True)
def servers():
    """Those of multiprocessing and torch stay: the forkserver, whose children need not import torch so, and
    who hands descriptors on."""
    fd = os.open(os.devnull, os.O_RDONLY)
    os.close(multiprocessing.resource_sharer.DupFd(fd).detach())
    os.close(fd)
    multiprocessing.forkserver.set_forkserver_preload(["libshare.torch"])
    multiprocessing.forkserver.ensure_running()


@pytest.fixture
def pool(client):
    with client.pool("test", kind="host", limit="64MiB") as p:
        lt.install(p)
        libshare._stats._counts.clear()
        yield p
        lt.uninstall()
    libshare.client_of(client.address).close()


def in_pool(tensor):
    try:
        return libshare.array_of(tensor) is not None
    except ValueError:
        return False


def counts():
    return libshare.stats().get("torch", {})
