#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""frames: a decoder hands frames to a detector, another process, and none of them is copied.

    frames.py [FRAMES]

The decoder draws each frame straight into memory of a pool and sends it through a channel. The
detector looks for the ball in that same memory, and sends what it has found, without any memory,
through a second channel. After a frame was worked on, the decoder gets its memory back, so a few
buffers serve any number of frames; if the detector is slower, the decoder waits. It waits for the
detector to come, too (wait_for): without that the oldest frames would be dropped meanwhile.

The two could also be separate programs, started in any order, if they find the same broker:
`connect()` without an address looks at $SHARE_SOCKET, and then where a broker of the machine serves.
"""

import multiprocessing
import os
import sys

import numpy as np

import libshare

SHAPE = (1080, 1920, 3)
BALL = 40  # pixels


def place(n):
    """Where the ball is in frame n: row and column of its upper left corner."""
    return n * 13 % (SHAPE[0] - BALL), n * 37 % (SHAPE[1] - BALL)


def decode(count):
    with (
        libshare.connect(label="decoder") as client,
        client.pool("frames") as pool,
        pool.producer("camera", wait_for=1) as camera,
    ):
        for n in range(count):
            frame = pool.empty(SHAPE, np.uint8)
            image = np.asarray(frame)  # not a copy: this is the memory of the pool
            image[:] = 20
            row, column = place(n)
            image[row : row + BALL, column : column + BALL] = 255
            del image  # a frame must not be written to after it was sent
            camera.send(frame, meta={"n": n}, give=True)
        camera.flush()  # frames that no consumer has room for yet would be lost with this process


def find_ball(frame):
    bright = np.asarray(frame)[:, :, 0] == 255
    return int(bright.any(axis=1).argmax()), int(bright.any(axis=0).argmax())


def detect():
    with (
        libshare.connect(label="detector") as client,
        client.pool("frames") as pool,
        pool.consumer("camera", from_="oldest") as camera,
        pool.producer("found") as found,
    ):
        # A message is acknowledged at the end of its step; the loop ends when the decoder has closed
        # the channel, and raises OwnerDiedError when it was killed.
        for message in camera:
            found.send(meta={"n": message.meta["n"], "ball": find_ball(message.array)})
        found.flush()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    # Starts a broker for this program alone, unless $SHARE_SOCKET leads to one.
    with libshare.connect(os.environ.get("SHARE_SOCKET") or "embedded") as client:
        os.environ["SHARE_SOCKET"] = client.address
        # It is host memory, since CPUs work on it. The children open this pool by its name.
        with (
            client.pool("frames", kind="host", limit="256MiB") as pool,
            pool.consumer("found") as found,
        ):
            context = multiprocessing.get_context("spawn")
            children = [
                context.Process(target=decode, args=(count,), daemon=True),
                context.Process(target=detect, daemon=True),
            ]
            for child in children:
                child.start()
            for n in range(count):
                with found.recv(timeout=60) as message:
                    if message.meta != {"n": n, "ball": list(place(n))}:
                        sys.exit(f"frames: wrong: {message.meta}, and the ball is at {place(n)}")
            for child in children:
                child.join()
                if child.exitcode != 0:
                    sys.exit(f"frames: {child.name} ended with {child.exitcode}")
    print(f"frames: ok frames={count} bytes={count * np.prod(SHAPE)}")


if __name__ == "__main__":
    main()
