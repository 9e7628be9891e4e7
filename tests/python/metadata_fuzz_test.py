# SPDX-License-Identifier: MIT
"""Metadata as a hostile process may set it: Array.metadata is a dictionary or a list, or raises an error of
the library, and raw_metadata() has the bytes. The broker is told by packets of this test's own, as no
library sets what is no JSON. The inputs are those of tests/themes/fuzz (fuzz_metadata), and what comes of
them by chance.

$SHARE_FUZZ_SEED names another seed than the fresh one, $SHARE_FUZZ_STEPS how many inputs.
"""

import glob
import os
import random
import socket
import struct

import libshare

CORPUS = os.path.join(os.path.dirname(__file__), "../themes/fuzz/corpora/metadata/*")
HELLO, READY, DONE, BYE, GRANT, IMPORT, METADATA_SET = 1, 3, 4, 7, 14, 27, 29
RDWR = 3
PIECES = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\u0000", b"\\ud800", b"\x00", b"\xff", b"\xed\xa0\x80", b"null",
          b"NaN", b"Infinity", b"-0", b"1e999", b"1E-999", b"0.1", b"18446744073709551616", b"-9223372036854775808",
          b'"a":1,', b"\n", b"\\", b"/*", b"[" * 70, b"true", b"\xef\xbb\xbf"]


class Hostile:
    """A client that may write in the buffer behind a token, and says what it likes of it."""

    def __init__(self, address, token):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(address)
        self.serial = 0
        self.ask(HELLO, struct.pack("<IIIII", 7, 6, 7, 0, 0), b"hostile")
        self.ask(READY, b"")
        kind, packet = self.ask(IMPORT, struct.pack("<III", RDWR, 0, len(token)), token)
        assert kind == GRANT
        self.buffer = struct.unpack_from("<Q", packet, 8)[0]

    def ask(self, kind, fixed, more=b""):
        self.serial += 1
        self.socket.send(struct.pack("<HHI", kind, len(fixed), self.serial) + fixed + more)
        while True:
            packet, fds, _, _ = socket.recv_fds(self.socket, 80000, 70)
            for fd in fds:
                os.close(fd)
            answer, _, serial = struct.unpack_from("<HHI", packet)
            if serial == self.serial:
                return answer, packet

    def set_metadata(self, text):
        kind, _ = self.ask(METADATA_SET, struct.pack("<QI", self.buffer, len(text)), text)
        assert kind == DONE

    def leave(self):
        kind, _ = self.ask(BYE, b"")
        assert kind == DONE
        self.socket.close()


def changed(chance, seeds):
    text = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(text))
        what = chance.random()
        if what < 0.4:
            text[at:at] = chance.choice(PIECES)
        elif what < 0.6:
            del text[at : at + chance.randint(1, 8)]
        elif what < 0.8:
            text[at : at + 1] = bytes([chance.randrange(256)])
        else:
            other = chance.choice(seeds)
            text[at:at] = other[chance.randint(0, len(other)) :]
    return bytes(text[:65536])


def expect_good_reading(array, text):
    assert array.raw_metadata() == (text or None)
    try:
        value = array.metadata
    except libshare.Error as e:
        assert str(e)
        return False
    assert value is None if not text else isinstance(value, (dict, list))
    return True


def test_whatever_is_set_is_read_or_refused(broker, pool):
    seed = int(os.environ.get("SHARE_FUZZ_SEED", random.randrange(1 << 32)))
    steps = int(os.environ.get("SHARE_FUZZ_STEPS", 3000))
    print("seed", seed)
    chance = random.Random(seed)
    seeds = [open(path, "rb").read() for path in sorted(glob.glob(CORPUS))]
    assert len(seeds) > 10
    with pool.alloc(100) as array:
        hostile = Hostile(broker.address, array.export(mode="rw"))
        read = 0
        for text in seeds + [b""] + [changed(chance, seeds) for _ in range(steps)]:
            hostile.set_metadata(text)
            read += expect_good_reading(array, text)
        assert read > 10
        hostile.leave()
