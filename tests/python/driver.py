# SPDX-License-Identifier: MIT
"""The CUDA driver itself, for tests over the stand-in that need streams with work on them."""

import ctypes
import threading

from conftest import until


class Driver:
    """The driver's own functions, to enqueue work that does not end until it is told to."""

    def __init__(self, device=0):
        self.lib, self.device = ctypes.CDLL("libcuda.so.1"), device
        self.held, self.streams = [], []
        self.context = ctypes.c_void_p()
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device) == 0
        assert self.lib.cuCtxSetCurrent(self.context) == 0

    def stream(self):
        """A new one of its device, whichever is current."""
        made = ctypes.c_void_p()
        assert self.lib.cuCtxPushCurrent_v2(self.context) == 0
        assert self.lib.cuStreamCreate(ctypes.byref(made), 1) == 0
        assert self.lib.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
        self.streams.append(made)
        return made.value

    def hold(self, stream):
        """The stream stands still until what is answered is set."""
        go = threading.Event()
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: go.wait())
        self.held.append((go, function, stream))
        assert self.lib.cuLaunchHostFunc(ctypes.c_void_p(stream), function, None) == 0
        return go

    def fill(self, stream, array, value):
        """Enqueues that all bytes of the Array become this."""
        assert self.lib.cuCtxPushCurrent_v2(self.context) == 0
        assert self.lib.cuMemsetD8Async(ctypes.c_uint64(array.ptr), ctypes.c_ubyte(value), ctypes.c_size_t(array.nbytes),
                                        ctypes.c_void_p(stream)) == 0
        assert self.lib.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0

    def idle(self, stream):
        answer = self.lib.cuStreamQuery(ctypes.c_void_p(stream))
        assert answer in (0, 600)
        return answer == 0

    def stands_still(self, stream):
        """What is wrong is seen nearly always, what is right is never taken for wrong."""
        return not any(self.idle(stream) for _ in range(10000))

    def let_go(self):
        for go, _, _ in self.held:
            go.set()

    def end(self):
        self.lib.cuCtxSetCurrent(self.context)
        self.let_go()  # all before one is waited for: of a test that has failed, one may stand behind another
        for _, _, stream in self.held:
            until(lambda: self.idle(stream))
        for stream in self.streams:
            self.lib.cuStreamDestroy_v2(stream)
        self.lib.cuCtxSetCurrent(None)
        self.lib.cuDevicePrimaryCtxRelease_v2(self.device)
