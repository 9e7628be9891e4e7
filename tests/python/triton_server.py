# SPDX-License-Identifier: MIT
"""A stand-in for Triton Inference Server, for triton_test.py: its endpoint as far as shared memory goes, with
its rules and its words, and one model, whose output is its input + 1. It opens the handles of others by the
driver, as Triton does, and knows nothing of libshare.

    triton_server.py http FD          FD: a socket that listens
    triton_server.py grpc             says its port
"""

import base64
import contextlib
import ctypes
import json
import re
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from tritonclient.utils import triton_to_np_dtype


class Refused(Exception):
    def __init__(self, code, words):
        super().__init__(words)
        self.code = code  # as gRPC names it


class Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


class Driver:
    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert self.lib.cuInit(0) == 0
        assert self.lib.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        self.context = context

    def call(self, name, *arguments):
        """Its answer. Threads come and go, and each needs the context."""
        assert self.lib.cuCtxSetCurrent(self.context) == 0
        return getattr(self.lib, name)(*arguments)

    def open(self, handle):
        """Answers None if the driver does not."""
        address, lazy_peer_access = ctypes.c_uint64(), 1
        good = self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), Handle.from_buffer_copy(handle), lazy_peer_access) == 0
        return address.value if good else None

    def size(self, address):
        """Of the allocation."""
        size = ctypes.c_size_t()
        assert self.call("cuMemGetAddressRange_v2", None, ctypes.byref(size), ctypes.c_uint64(address)) == 0
        return size.value

    def read(self, address, size):
        content = ctypes.create_string_buffer(size)
        assert self.call("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(size)) == 0
        return content.raw

    def write(self, address, content):
        assert self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(len(content))) == 0

    def close(self, address):
        assert self.call("cuIpcCloseMemHandle", ctypes.c_uint64(address)) == 0


class Server:
    def __init__(self):
        self.driver, self.lock = Driver(), threading.Lock()
        self.regions = {}  # name: address, device, size

    def register(self, name, handle, device, size):
        if name in self.regions:
            raise Refused("ALREADY_EXISTS", f"shared memory region '{name}' already in manager")
        address = self.driver.open(handle) if len(handle) == 64 and device == 0 else None
        if address is None:
            raise Refused("INVALID_ARGUMENT", "failed to register shared memory region: invalid args")
        if size > self.driver.size(address):
            raise Refused("INVALID_ARGUMENT", f"failed to register shared memory region '{name}': invalid args")
        self.regions[name] = address, device, size

    def unregister(self, name):
        for one in [name] if name else list(self.regions):
            if one in self.regions:
                self.driver.close(self.regions.pop(one)[0])

    def status(self, name):
        if name and name not in self.regions:
            raise Refused("NOT_FOUND", f"Unable to find cuda shared memory region: '{name}'")
        return [{"name": one, "device_id": device, "byte_size": size}
                for one, (_, device, size) in self.regions.items() if name in ("", one)]

    def place(self, region, offset, size):
        if region not in self.regions:
            raise Refused("NOT_FOUND", f"Unable to find shared memory region: '{region}'")
        address, _, there = self.regions[region]
        if offset >= there:
            raise Refused("INVALID_ARGUMENT", f"Invalid offset for shared memory region: '{region}'")
        if offset + size > there:
            raise Refused("INVALID_ARGUMENT", f"Invalid offset + byte size for shared memory region: '{region}'")
        return address + offset

    def infer(self, datatype, shape, read_from, write_to):
        """Answers the output's bytes if write_to is None. Of places: region, offset, size."""
        dtype = np.dtype(triton_to_np_dtype(datatype))
        if np.prod(shape) * dtype.itemsize != read_from[2]:
            raise Refused("INVALID_ARGUMENT", "input byte size mismatch")
        source = np.frombuffer(self.driver.read(self.place(*read_from), read_from[2]), dtype)
        content = (source + 1).astype(dtype).tobytes()
        if write_to is None:
            return content
        if len(content) > write_to[2]:
            raise Refused("INTERNAL", "shared memory size specified with the request for output is too small")
        self.driver.write(self.place(*write_to), content)
        return None


def place_of(parameters):
    return (parameters["shared_memory_region"], parameters.get("shared_memory_offset", 0), parameters["shared_memory_byte_size"])


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        length = int(self.headers.get("Content-Length", 0))
        content = self.rfile.read(length)
        code, said = 200, b""
        try:
            with self.server.triton.lock:
                found = self.do(json.loads(content or b"{}"))
            said = json.dumps(found).encode() if found is not None else b""
        except Refused as e:
            code, said = 404 if e.code == "NOT_FOUND" else 400, json.dumps({"error": str(e)}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = answer

    def do(self, given):
        triton = self.server.triton
        found = re.fullmatch(r"/v2/cudasharedmemory(?:/region/([^/]+))?/(status|register|unregister)", self.path)
        if found is None:
            assert self.path == "/v2/models/add_one/infer", self.path
            return self.infer(triton, given)
        name, action = found[1] or "", found[2]
        assert (self.command == "GET") == (action == "status")
        if action == "register":
            return triton.register(name, base64.b64decode(given["raw_handle"]["b64"]), given["device_id"], given["byte_size"])
        return getattr(triton, action)(name)

    def infer(self, triton, given):
        source, wanted = given["inputs"][0], given.get("outputs", [{"name": "OUT"}])[0]
        parameters = wanted.get("parameters", {})
        to = place_of(parameters) if "shared_memory_region" in parameters else None
        content = triton.infer(source["datatype"], source["shape"], place_of(source["parameters"]), to)
        output = {"name": "OUT", "datatype": source["datatype"], "shape": source["shape"]}
        if to is None:
            output["data"] = np.frombuffer(content, triton_to_np_dtype(source["datatype"])).tolist()
        else:
            output["parameters"] = {"shared_memory_region": to[0], "shared_memory_byte_size": to[2]}
        return {"model_name": "add_one", "model_version": "1", "outputs": [output]}

    def log_message(self, *_):
        pass


def serve_http(fd):
    server = ThreadingHTTPServer(("", 0), Http, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=fd)
    server.server_name, server.server_port, server.triton = "stand-in", 0, Server()
    print("ready", flush=True)
    server.serve_forever()


def serve_grpc():
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from tritonclient.grpc import service_pb2 as pb
    from tritonclient.grpc import service_pb2_grpc

    triton = Server()

    @contextlib.contextmanager
    def refusing(context):
        try:
            with triton.lock:
                yield
        except Refused as e:
            context.abort(grpc.StatusCode[e.code], str(e))

    def parameters(tensor):
        return {name: getattr(p, p.WhichOneof("parameter_choice")) for name, p in tensor.parameters.items()}

    class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
        def CudaSharedMemoryRegister(self, r, context):
            with refusing(context):
                triton.register(r.name, r.raw_handle, r.device_id, r.byte_size)
            return pb.CudaSharedMemoryRegisterResponse()

        def CudaSharedMemoryUnregister(self, r, context):
            with refusing(context):
                triton.unregister(r.name)
            return pb.CudaSharedMemoryUnregisterResponse()

        def CudaSharedMemoryStatus(self, r, context):
            answer = pb.CudaSharedMemoryStatusResponse()
            with refusing(context):
                for row in triton.status(r.name):
                    answer.regions[row["name"]].CopyFrom(answer.RegionStatus(**row))
            return answer

        def ModelInfer(self, r, context):
            source, answer = r.inputs[0], pb.ModelInferResponse(model_name="add_one")
            with refusing(context):
                triton.infer(source.datatype, list(source.shape), place_of(parameters(source)), place_of(parameters(r.outputs[0])))
            answer.outputs.add(name="OUT", datatype=source.datatype, shape=source.shape)
            return answer

    server = grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Service(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    serve_grpc() if sys.argv[1] == "grpc" else serve_http(int(sys.argv[2]))
