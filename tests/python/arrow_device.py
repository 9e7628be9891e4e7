# SPDX-License-Identifier: MIT
"""What a consumer of Arrow's C Device Data Interface does, without one."""

import ctypes as c


class Schema(c.Structure):
    pass


class Array(c.Structure):
    pass


Schema._fields_ = [
    ("format", c.c_char_p), ("name", c.c_char_p), ("metadata", c.c_char_p), ("flags", c.c_int64), ("n_children", c.c_int64),
    ("children", c.c_void_p), ("dictionary", c.c_void_p), ("release", c.CFUNCTYPE(None, c.POINTER(Schema))), ("context", c.c_void_p)]
Array._fields_ = [
    ("length", c.c_int64), ("null_count", c.c_int64), ("offset", c.c_int64), ("n_buffers", c.c_int64), ("n_children", c.c_int64),
    ("buffers", c.POINTER(c.c_void_p)), ("children", c.c_void_p), ("dictionary", c.c_void_p),
    ("release", c.CFUNCTYPE(None, c.POINTER(Array))), ("context", c.c_void_p)]


class DeviceArray(c.Structure):
    _fields_ = [("array", Array), ("device_id", c.c_int64), ("device_type", c.c_int32), ("sync_event", c.c_void_p),
                ("reserved", c.c_int64 * 3)]


def _pointer(capsule, name):
    get = c.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c.c_void_p, [c.py_object, c.c_char_p]
    return get(capsule, name)


class Taken:
    """An array that was moved out of its capsule, as consumers do."""

    def __init__(self, exported):
        schema, array = exported
        there = Schema.from_address(_pointer(schema, b"arrow_schema"))
        self.format, self.flags = there.format.decode(), there.flags
        there.release(c.byref(there))
        assert not there.release
        there = DeviceArray.from_address(_pointer(array, b"arrow_device_array"))
        self._own = DeviceArray.from_buffer_copy(there)
        there.array.release = type(there.array.release)()  # moved
        self.device = self._own.device_type, self._own.device_id
        a = self._own.array
        assert (a.null_count, a.offset, a.n_buffers, a.n_children, a.buffers[0]) == (0, 0, 2, 0, None)
        assert not self._own.sync_event and list(self._own.reserved) == [0, 0, 0]
        self.length, self.data = a.length, a.buffers[1]

    def release(self):
        self._own.array.release(c.byref(self._own.array))
        assert not self._own.array.release
