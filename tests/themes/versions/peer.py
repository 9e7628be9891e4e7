# SPDX-License-Identifier: MIT
"""As version-peer (peer.c), of the Python package: it obeys the same orders, but those of services, of
watches and of host streams.

usage: peer.py ADDRESS"""

import sys

import libshare

SIZE = 70000
LIMIT = 60.0


def expect(condition, why):
    if not condition:
        raise AssertionError(why)


class Peer:
    def __init__(self, address):
        self.client = libshare.connect(address)
        self.pool = self.client.pool("default")
        self.ends, self.messages = {}, {}
        self.awaits = None

    def filled(self, byte):
        array = self.pool.alloc(SIZE)
        array.copy_from(bytes([int(byte)]) * SIZE)
        array.metadata = {"byte": int(byte)}
        return array

    @staticmethod
    def expect_content(array, byte):
        expect(array.tobytes() == bytes([int(byte)]) * SIZE, "it has other bytes")

    def expect_all(self, array, byte):
        with array:
            self.expect_content(array, byte)
            expect(array.metadata == {"byte": int(byte)}, "it has other metadata")

    def publish(self, name, byte):
        with self.filled(byte) as array:
            array.publish(name)

    def lookup(self, name, byte):
        self.expect_all(self.client.lookup(name, timeout=LIMIT), byte)

    def has(self, name, byte):
        with self.client.lookup(name, timeout=LIMIT) as array:
            self.expect_content(array, byte)

    def export(self, byte, uses):
        with self.filled(byte) as array:
            return array.export(uses=int(uses)).hex()

    def import_(self, text, byte):
        self.expect_all(self.client.import_(bytes.fromhex(text)), byte)

    def await_(self, name):
        self.awaits = self.client.lookup_async(name)

    def awaited(self, byte):
        self.expect_all(self.awaits.result(LIMIT), byte)

    def open(self, name, role):
        make = self.pool.producer if role == "producer" else self.pool.consumer
        self.ends[name] = make(name, mode="queue" if name.startswith("queue") else "broadcast", depth=8)

    def send(self, name, byte):
        with self.filled(byte) as array:
            self.ends[name].send(array, data=byte.encode())

    def recv(self, name, byte):
        message = self.messages[name] = self.ends[name].recv(LIMIT)
        expect(message.data == byte.encode(), "it is another message")
        self.expect_content(message.array, byte)

    def lent(self, name):
        return str(self.messages[name].array.metadata)

    def ack(self, name, byte):
        message = self.messages.pop(name)
        self.expect_content(message.array, byte)
        message.ack()

    def obey(self, what, *arguments):
        return getattr(self, {"import": "import_", "await": "await_"}.get(what, what))(*arguments)


def main():
    peer = Peer(sys.argv[1])
    print("ok", flush=True)
    for line in sys.stdin:
        try:
            print("ok", peer.obey(*line.split()) or "", flush=True)
        except (libshare.Error, AssertionError) as e:
            print("error", e, flush=True)


main()
