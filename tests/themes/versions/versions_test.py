#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs of this version and of an older one (build_old.sh) with brokers of either, and an upgrade of a
broker from the old to the new one while all of them are in the middle of something. What cannot work says so
in a sentence, which is compared here.

usage: versions_test.py OLD PEER PYTHON [BRIDGE]     OLD: build_old.sh's folder; PEER: version-peer;
       PYTHON: an interpreter that has the package of this version; with SHARE_TEST_BIN set
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

OLD, PEER, PYTHON = sys.argv[1:4]
BRIDGES = len(sys.argv) > 4
NEW_BIN, OLD_BIN = os.environ["SHARE_TEST_BIN"], OLD + "/bin"
HERE = os.path.dirname(os.path.realpath(__file__))
REPORTS = "status pools segments buffers leases names tokens events channels clients users agents".split()
CONFIG = {"pools": [{"name": "default", "kind": "host", "limit": "256MiB", "segment_size": "1MiB",
                     "access": [{"user": "*", "mode": "rw"}]}]}
LIMIT_S = 60

environment = {k: v for k, v in os.environ.items() if not k.startswith("SHARE_")}
environment["UCX_TLS"], environment["UCX_NET_DEVICES"] = "tcp,self", "lo"
failures = []


def check(what, condition, more=""):
    print("ok:" if condition else "FAILED:", what, flush=True)
    if not condition:
        failures.append(what)
        print(more, flush=True)


def until(what, condition):
    """Waits for it; the time limit is only for what has failed."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"FAILED: never: {what}")
        time.sleep(0.01)


class Process:
    def __init__(self, name, command, **more):
        self.name = name
        self.process = subprocess.Popen(command, env=environment | more.pop("env", {}), **more)

    def end(self, code=0):
        got = self.process.wait(LIMIT_S)
        check(f"{self.name} ends well", got == code, f"exit code {got}")


class Broker(Process):
    """One in a folder of its own, where its program can be replaced."""

    def __init__(self, folder, program):
        os.mkdir(folder)
        self.folder, self.address, self.log = folder, folder + "/socket", folder + "/log"
        for name in ("share-broker", "share-agent"):
            shutil.copy(f"{program}/{name}", folder)
        self.replace(program)
        with open(folder + "/config", "w", encoding="utf-8") as f:
            json.dump(CONFIG, f)
        # which ends it with this test, whatever that ends of
        lifeline, self.end_of_lifeline = os.pipe()
        with open(self.log, "w", encoding="utf-8") as log:
            super().__init__("a broker", [folder + "/share-broker", "--config", folder + "/config", "--socket",
                                          self.address, "--lifeline-fd", str(lifeline)],
                             stderr=log, pass_fds=(lifeline,))
        os.close(lifeline)
        until("the broker serves", self.lets_in)

    def lets_in(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            return s.connect_ex(self.address) == 0

    def replace(self, program):
        """As a package does."""
        shutil.copy(f"{program}/share-broker.so", self.folder + "/new")
        os.rename(self.folder + "/new", self.folder + "/share-broker.so")

    def said(self):
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.end()
        check("it has logged no mistake", "BUG" not in self.said() and " error: " not in self.said(), self.said())


class Peer(Process):
    """A process that is told what to do."""

    def __init__(self, kind, broker):
        self.kind, self.is_python = kind, "Python" in kind
        super().__init__(kind, COMMANDS[kind] + [broker.address], env=ENVIRONMENTS[kind], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
        self.order = "connect"

    def tell(self, order):
        self.order = order
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def hear(self):
        """What it answers; or why not."""
        word, _, text = self.process.stdout.readline().strip().partition(" ")
        if word != "ok":
            check(f"{self.kind}: {self.order}", False, text)
        return text

    def ask(self, order):
        self.tell(order)
        return self.hear()

    def expect_refusal(self, order, sentence):
        self.tell(order)
        answer = self.process.stdout.readline().strip()
        check(f"{self.kind}: {order}: says what it cannot", answer.startswith("error ") and sentence in answer, answer)

    def leave(self):
        self.process.stdin.close()
        self.end()


NEW_LIBRARY = {"LD_LIBRARY_PATH": os.path.dirname(NEW_BIN) + "/lib"}
OLD_LIBRARY = {"LD_LIBRARY_PATH": OLD + "/lib"}
COMMANDS = {
    "new": [PEER],
    "old": [OLD + "/peer"],
    "new Python": [PYTHON, HERE + "/peer.py"],
    "old Python": [PYTHON, HERE + "/peer.py"],
}
ENVIRONMENTS = {
    "new": NEW_LIBRARY,
    "old": OLD_LIBRARY,
    "new Python": {},
    "old Python": {"PYTHONPATH": OLD + "/python"},
}
KINDS = list(COMMANDS)


def all_do(peers, order):
    """The same, all at once. {}: the peer's number."""
    for i, peer in enumerate(peers):
        peer.tell(order.replace("{}", str(i)))
    return [peer.hear() for peer in peers]


def sharectl(program, broker, *arguments):
    library = OLD_LIBRARY if program == OLD_BIN else NEW_LIBRARY
    return subprocess.run([program + "/sharectl", "--socket=" + broker.address, *arguments], text=True, check=False,
                          env=environment | library, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def expect_reports(program, broker, what):
    for report in REPORTS:
        done = sharectl(program, broker, "--json", report)
        check(f"{what} shows {report}", done.returncode == 0, done.stdout)


def upgrade(broker, program):
    broker.replace(NEW_BIN)
    done = sharectl(program, broker, "upgrade")
    check("the old broker hands over to the new one", done.returncode == 0, done.stdout + broker.said())


# ----------------------------------------------------------------------------------------------
# Everybody with everybody

TOO_OLD = "this broker is too old to tell the metadata of a message's buffer: call share_retain(), and " \
          "acknowledge the message first"


def begin(givers, takers):
    """With the old broker: all that goes on over the upgrade."""
    n = len(takers)
    all_do(givers, "publish name-{} 1{}")
    for i, giver in enumerate(givers):
        giver.ask(f"open channel-{i} producer")
        giver.token = giver.ask(f"export 2{i} {2 * n + 1}")
        for k, taker in enumerate(takers):
            giver.ask(f"open queue-{i}-{k} producer")
            taker.ask(f"open queue-{i}-{k} consumer")
        all_do(takers, f"open channel-{i} consumer")
        for message in (30, 31, 32):
            giver.ask(f"send channel-{i} {message}")
        for k in range(n):
            giver.ask(f"send queue-{i}-{k} 40")
        all_do(takers, f"lookup name-{i} 1{i}")
        all_do(takers, f"import {giver.token} 2{i}")
        all_do(takers, f"recv channel-{i} 30")
    all_do(takers, "await later")
    for taker in takers:
        if not taker.is_python:
            taker.ask("watch seen")


def begin_work(givers, takers):
    """Of what only programs in C do: one has work that has not ended, and others wait for it."""
    givers[0].ask("begin begun 50")
    for taker in takers:
        taker.tell("lookup begun 50")


def end_work(givers, takers):
    givers[0].ask("finish 50")
    for taker in takers:
        taker.hear()


def go_on(givers, takers):
    """With the new one: what had begun, and more of it."""
    givers[1].ask("publish later 60")
    all_do(takers, "awaited 60")
    givers[0].ask("publish seen 61")
    for taker in takers:
        if not taker.is_python:
            taker.ask("saw seen")
    for i, giver in enumerate(givers):
        all_do(takers, f"ack channel-{i} 30")
        for message in (31, 32):
            all_do(takers, f"recv channel-{i} {message}")
            all_do(takers, f"ack channel-{i} {message}")
        giver.ask(f"send channel-{i} 33")
        all_do(takers, f"recv channel-{i} 33")
        all_do(takers, f"ack channel-{i} 33")
        for k, taker in enumerate(takers):
            taker.ask(f"recv queue-{i}-{k} 40")
            taker.ask(f"ack queue-{i}-{k} 40")
        all_do(takers, f"import {giver.token} 2{i}")
        takers[i].ask(f"import {giver.token} 2{i}") # the last use
        takers[i].expect_refusal(f"import {giver.token} 2{i}", "token")
        all_do(takers, f"lookup name-{i} 1{i}")
        giver.ask(f"publish name-{i} 7{i}")
        all_do(takers, f"lookup name-{i} 7{i}")


TOO_OLD_TO_REJECT = "this broker is too old to know rejections"


def reject(giver, taker):
    """Who may have given it by then to nobody else. What cannot be rejected is there."""
    giver.ask("open queue-rejected producer")
    taker.ask("open queue-rejected consumer")
    giver.ask("send queue-rejected 45")
    taker.ask("recv queue-rejected 45")
    taker.expect_refusal("reject queue-rejected", TOO_OLD_TO_REJECT)
    taker.ask("ack queue-rejected 45")


def begin_services(broker):
    pairs = []
    for i, (worker, caller) in enumerate((("old", "new"), ("new", "old"))):
        pair = Peer(worker, broker), Peer(caller, broker)
        for peer, role in zip(pair, ("worker", "caller")):
            peer.hear()
            peer.ask(f"serve service-{i} {role}")
        pair[1].ask("ask 80")
        pairs.append(pair)
    return pairs


def end_services(pairs):
    for worker, caller in pairs:
        worker.ask("work 80 81")
        caller.ask("answered 81")
        caller.ask("ask 82")
        worker.ask("work 82 83")
        caller.ask("answered 83")
        caller.leave()
        worker.leave()


def start(kinds, broker):
    peers = [Peer(kind, broker) for kind in kinds]
    for peer in peers:
        peer.hear()
    return peers


def expect_newcomers(broker, giver):
    """Who comes to the new broker, of either version, is as well off as who was there."""
    peers = start(KINDS, broker)
    all_do(peers, "lookup name-0 70")
    all_do(peers, "open channel-0 consumer")
    giver.ask("send channel-0 34")
    all_do(peers, "recv channel-0 34")
    for peer in peers:
        if peer.kind == "new":
            said = peer.ask("lent channel-0")
            check(f"{peer.kind}: the metadata of a message", said == '{"byte":34}', said)
    all_do(peers, "ack channel-0 34")
    for peer in peers:
        peer.leave()


def everybody(folder):
    broker = Broker(folder + "/old", OLD_BIN)
    givers, takers = start(KINDS, broker), start(KINDS, broker)
    in_c = [taker for taker in takers if not taker.is_python]
    services = begin_services(broker)
    begin(givers, takers)
    takers[0].expect_refusal("lent channel-0", TOO_OLD)
    reject(givers[0], takers[0])
    for program, what in ((OLD_BIN, "the old sharectl"), (NEW_BIN, "the new sharectl")):
        expect_reports(program, broker, what + " of the old broker")
    begin_work(givers, in_c)
    upgrade(broker, NEW_BIN)
    end_work(givers, in_c)
    go_on(givers, takers)
    end_services(services)
    for program, what in ((OLD_BIN, "the old sharectl"), (NEW_BIN, "the new sharectl")):
        expect_reports(program, broker, what + " of the new broker")
    done = sharectl(OLD_BIN, broker, "upgrade")
    check("the old sharectl has the new broker hand over", done.returncode == 0, done.stdout)
    expect_newcomers(broker, givers[0])
    for peer in givers + takers:
        peer.leave()
    status = json.loads(sharectl(NEW_BIN, broker, "--json", "status").stdout)
    status = status[0] if isinstance(status, list) else status
    check("nothing is left", all(status[key] == 0 for key in ("buffers", "names", "tokens", "leases")), str(status))
    check("the log says what the keeper lacks", "the keeper is of an older version" in broker.said(), broker.said())
    broker.stop()


def downgrade(folder):
    """Back to the old program: not without a restart, and who serves goes on."""
    broker = Broker(folder + "/new", NEW_BIN)
    peer = start(["new"], broker)[0]
    peer.ask("publish name 90")
    broker.replace(OLD_BIN)
    for program in (NEW_BIN, OLD_BIN):
        done = sharectl(program, broker, "upgrade")
        check("the new broker does not hand over to the old one, and says why",
              done.returncode != 0 and "this program is not for the keeper that runs" in done.stdout, done.stdout)
    peer.ask("lookup name 90")
    peer.leave()
    broker.process.send_signal(signal.SIGTERM)
    broker.end()


# ----------------------------------------------------------------------------------------------
# Bridges

def reserve_port():
    """A port that nobody gets who does not ask for it. One who may use it again, as bridges may, can listen there."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    return s


class Bridge(Process):
    all = []

    def __init__(self, broker, program, site, key, *options):
        self.log = f"{broker.folder}/bridge"
        library = OLD_LIBRARY if program == OLD_BIN else NEW_LIBRARY
        with open(self.log, "w", encoding="utf-8") as log:
            super().__init__(f"the bridge of {site}",
                             [program + "/share-bridge", "--socket", broker.address, "--site", site, "--key", key,
                              "--timeout", "60", "--export", "*", "--import", "*", *options], env=library, stderr=log)
        Bridge.all.append(self.process)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.end()


def bridged(folder, far_program, near_program):
    """far: a broker that is upgraded; near: a new one. Their bridges are of either version."""
    os.mkdir(folder)
    reserved = reserve_port()
    key, place = folder + "/key", f"127.0.0.1:{reserved.getsockname()[1]}"
    with open(key, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
        f.write("no secret but for this test\n")
    far, near = Broker(folder + "/far", OLD_BIN), Broker(folder + "/near", NEW_BIN)
    bridges = [Bridge(far, far_program, "far", key, "--listen", place),
               Bridge(near, near_program, "near", key, "--peer", place)]
    there, here = start(["old", "new"][:1], far)[0], start(["new"], near)[0]
    there.ask("publish from-far 100")
    here.ask("publish from-near 101")
    here.ask("has from-far 100")
    there.ask("has from-near 101")
    upgrade(far, OLD_BIN)
    there.ask("publish more-from-far 102")
    here.ask("publish more-from-near 103")
    here.ask("has more-from-far 102")
    there.ask("has more-from-near 103")
    for program in (OLD_BIN, NEW_BIN):
        until("sharectl shows the link", lambda p=program: " near " in sharectl(p, far, "bridges").stdout)
    there.leave()
    here.leave()
    for bridge in bridges:
        bridge.stop()
    reserved.close()
    far.stop()
    near.stop()


def main():
    if not os.path.exists(OLD + "/commit"):
        print("skipped: the old version was not built, as there is no history (see old_version)")
        return 77
    folder = tempfile.mkdtemp(prefix="share-", dir="/tmp")
    os.chmod(folder, 0o755)
    try:
        everybody(folder)
        downgrade(folder)
        if BRIDGES:
            bridged(folder + "/1", OLD_BIN, NEW_BIN)
            bridged(folder + "/2", NEW_BIN, OLD_BIN)
    finally:
        for process in Bridge.all:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


sys.exit(main())
