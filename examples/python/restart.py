#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""restart: a subscriber is killed and starts again, and its publisher goes on all the time.

    restart.py [TIMES]

The publisher sends one reading after the other, whether anybody listens or not: a broadcast without
consumers keeps nobody waiting. The subscriber is a process that is killed and started again, TIMES
times. Each new one gets the last readings that were sent while there was nobody, and is told how
many it has lost before these (`lost`).

A producer that must not lose any says `wait_for=1`, and waits while there is no consumer.
"""

import multiprocessing
import os
import sys
import threading

import libshare

DEPTH = 8  # so many readings wait for the next subscriber


def subscribe(heard):
    with libshare.connect(label="subscriber") as client, client.pool("readings") as pool:
        with pool.consumer("weather", depth=DEPTH) as weather:
            for message in weather:
                heard.send((message.meta, message.lost))


def publish(pool, over, counts):
    with pool.producer("weather", depth=DEPTH) as weather:
        n = 0
        while not over.is_set():
            weather.send(meta=n)
            n += 1
        counts["sent"] = n
        counts["dropped"] = weather.stats()["dropped"]


def main():
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    context = multiprocessing.get_context("spawn")
    over, counts = threading.Event(), {"lost": 0}
    # Starts a broker for this program alone, unless $SHARE_SOCKET leads to one.
    with libshare.connect(os.environ.get("SHARE_SOCKET") or "embedded") as client:
        os.environ["SHARE_SOCKET"] = client.address
        with client.pool("readings", kind="host", limit="64MiB") as pool:
            publisher = threading.Thread(target=publish, args=(pool, over, counts))
            publisher.start()
            last = -1
            for _ in range(times):
                ours, theirs = context.Pipe(duplex=False)
                subscriber = context.Process(target=subscribe, args=(theirs,), daemon=True)
                subscriber.start()
                first, lost = ours.recv()
                # the publisher has not waited while nobody was there
                if first <= last or lost > first:
                    sys.exit(f"restart: wrong: reading {first} after {last}, with {lost} lost before it")
                print(f"restart: a subscriber has come; its first reading is {first}, {lost} are lost")
                counts["lost"] += lost
                for n in range(first + 1, first + 100):
                    reading, lost = ours.recv()
                    if reading != n or lost:
                        sys.exit(f"restart: wrong: reading {reading}, and not {n}")
                last = first + 99
                subscriber.kill()
                subscriber.join()
            over.set()
            publisher.join()
    if not 0 < counts["lost"] <= counts["dropped"] < counts["sent"]:
        sys.exit(f"restart: wrong: {counts}")
    print(f"restart: ok times={times}")


if __name__ == "__main__":
    main()
