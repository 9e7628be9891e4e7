#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python frameworks of a machine with a GPU, on memory of ours.

    frameworks.py [--kinds vmm,mempool] [--parts PARTS] [--only FRAMEWORKS] [--peer PROGRAM]
                  [--rounds N] [--json FILE]

    pairs      every framework hands a buffer to every one, with its kernel still running, and wrong
               words are counted (framework_worker.py); so does --peer, the C program of peer.c
    programs   those of examples/python, and --peer: each to each
    workers    the worker pool of examples/python
    torch      torch_gpu_test.py: the allocator, and torch.multiprocessing; vllm_gpu_test.py: the loader for
               vLLM; pinned_gpu_test.py, of kind pinned; each test by itself

Everything runs in processes of its own, and is ended when it takes too long. Prints tables; --json
also writes a line of JSON for each result. Exit code 0: all were right; 1: not; 77: there is no GPU,
or nothing that could be run. What things cost is measured by python -m libshare.bench.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# in the tree, or beside this file in a bundle
EXAMPLES = next((f for f in (os.path.join(HERE, "examples"), os.path.join(HERE, "../../examples/python"))
                 if os.path.isdir(f)), None)
PARTS = ["pairs", "programs", "workers", "torch"]
FRAMEWORKS = ["torch", "cupy", "cupy-allocator", "bindings", "cuda.core", "numba", "pycuda", "jax"]
PROGRAMS = {"bindings": "cuda.bindings", "cupy": "cupy", "pycuda": "pycuda"}  # and what they import
START = 120  # seconds a framework may take to be there: some compile kernels first
ANSWER = 60
AT_ONCE = 6


class Report:
    """What was found, as it comes: "part kind name: result", and a line of JSON for each."""

    def __init__(self, path):
        self.file = open(path, "w") if path else None
        self.counts = {"ok": 0, "FAILED": 0, "skipped": 0}

    def add(self, part, kind, name, result, detail="", **figures):
        self.counts[result] += 1
        if self.file:
            row = {"part": part, "kind": kind, "name": name, "result": result, **figures}
            print(json.dumps(row | ({"detail": detail} if detail else {})), file=self.file, flush=True)
        if result == "FAILED":
            print(f"FAILED: {part} {kind} {name}: {detail}", file=sys.stderr, flush=True)


def table(kind, what, corner, rows, columns):
    """rows: a list of a name and its cells."""
    print(f"\n{kind}: {what}\n{corner:16}" + "".join(f"{c:>15}" for c in columns))
    for name, cells in rows:
        print(f"{name:16}" + "".join(f"{c!s:>15}" for c in cells), flush=True)


def run(command, limit, **environment):
    """Exit code, and what it said. One that takes too long is killed, with all that it has started."""
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               stdin=subprocess.DEVNULL, start_new_session=True,
                               env={**os.environ, **environment})
    try:
        said, _ = process.communicate(timeout=limit)
        return process.returncode, said.strip()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return 124, f"{said.strip()}\nit did not end within {limit} s"


def last(text):
    return text.strip().splitlines()[-1] if text.strip() else "it said nothing"


class Worker:
    """A process that takes orders, a line each."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.rest = b""
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def answer(self, limit):
        end = time.monotonic() + limit
        while b"\n" not in self.rest:
            if not self.selector.select(max(0, end - time.monotonic())):
                self.process.kill()
                return {"error": f"{self.name} did not answer within {limit} s"}
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                self.process.kill()
                return {"error": f"{self.name} ended with {self.process.wait()}"}
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def ask(self, **order):
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.answer(ANSWER)

    def end(self):
        """Whether it ends well when there are no more orders."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            return self.process.wait(ANSWER) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            return False


def pairs(owner, kinds, options, report):
    pools = [owner.pool(kind, kind=kind, limit="256MiB", segment_size="64MiB") for kind in kinds]
    command = [sys.executable, os.path.join(HERE, "framework_worker.py")]
    workers = [Worker(name, [*command, name, owner.address]) for name in options.only.split(",")]
    if options.peer:
        workers.append(Worker("c", [options.peer, owner.address]))
    here = []
    for worker in workers:
        answer = worker.answer(START)
        if answer.get("ready"):
            here.append(worker)
            continue
        worker.end()
        why = last(answer.get("missing") or answer.get("error"))
        print(f"{worker.name}: not here: {why}")
        report.add("pairs", "-", worker.name, "skipped" if "missing" in answer else "FAILED", why)
    base = 1
    for kind in kinds:
        rows = []
        for producer in here:
            cells = []
            for consumer in here:
                cell, detail = 0, ""
                for _ in range(options.rounds):
                    base = (base * 7919 + 13) % 1_000_000_007
                    order = {"kind": kind, "name": producer.name, "base": base}
                    made = producer.ask(do="produce", **order)
                    seen = consumer.ask(do="consume", **order) if made.get("ok") else made
                    if seen.get("wrong") != 0:
                        cell, detail = seen.get("wrong", "failed"), last(seen.get("error", ""))
                cells.append(cell)
                report.add("pairs", kind, f"{producer.name} to {consumer.name}",
                           "ok" if cell == 0 else "FAILED", detail, wrong=cell)
            rows.append((producer.name, cells))
        table(kind, "wrong words by producer (row) and consumer", "", rows, [w.name for w in here])
    for worker in here:
        if not worker.end():
            report.add("pairs", "-", worker.name, "FAILED", f"it ended with {worker.process.poll()}")
    for pool in pools:
        pool.close()


def programs(owner, kinds, options, report):
    here = []
    for name, module in PROGRAMS.items():
        try:
            found = importlib.util.find_spec(module)
        except ImportError:
            found = None
        if found and name in options.only.split(","):
            here.append(name)
        elif not found:
            report.add("programs", "-", name, "skipped", f"there is no {module}")
            print(f"share_{name}.py: not here: there is no {module}")
    peer = Worker("c", [options.peer, owner.address]) if options.peer else None
    if peer and not peer.answer(START).get("ready"):
        report.add("programs", "-", "c", "FAILED", "it does not start")
        peer = None
    # PyCUDA starts the compiler of CUDA
    path = os.environ.get("PATH", "") + ":/usr/local/cuda/bin"
    everyone = here + (["c"] if peer else [])

    def do(what, who, name, first):
        if who == "c":
            answer = peer.ask(do=what, kind="examples", name=name, base=first)
            return "ok" in answer or answer.get("wrong") == 0, str(answer)
        code, said = run([sys.executable, os.path.join(EXAMPLES, f"share_{who}.py"), what, name,
                          "--first", str(first)], START, SHARE_SOCKET=owner.address, PATH=path)
        said = said or f"it said nothing, and ended with {code}"
        return code == 0 and last(said) == f"share_{who}: ok {what} {name}", said

    for number, kind in enumerate(kinds):
        rows = []
        with owner.pool("examples", kind=kind, limit="256MiB"):
            for producer in everyone:
                name, first = f"from/{producer}", 1000 * number + len(rows)
                good, detail = do("produce", producer, name, first)
                answers = {}
                if good:
                    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
                        answers = {c: threads.submit(do, "consume", c, name, first) for c in everyone}
                    owner.unpublish(name)
                for consumer in everyone:
                    right, said = answers[consumer].result() if good else (False, detail)
                    report.add("programs", kind, f"{producer} to {consumer}", "ok" if right else "FAILED",
                               "" if right else last(said))
                rows.append((producer, ["ok" if good and answers[c].result()[0] else "failed"
                                        for c in everyone]))
        table(kind, "examples/python by producer (row) and consumer", "", rows, everyone)
    if peer and not peer.end():
        report.add("programs", "-", "c", "FAILED", f"it ended with {peer.process.poll()}")


def torch_is_here(part, report):
    if importlib.util.find_spec("torch"):
        return True
    report.add(part, "-", "-", "skipped", "there is no torch")
    return False


def workers(owner, kinds, options, report):
    if not torch_is_here("workers", report):
        return
    for kind in kinds:
        start = time.monotonic()
        code, said = run([sys.executable, os.path.join(EXAMPLES, "worker_pool.py"), "--kind", kind], 240,
                         SHARE_SOCKET=owner.address)
        good = code == 0 and last(said).startswith(f"worker_pool: ok kind={kind} ")
        report.add("workers", kind, "worker_pool", "ok" if good else "FAILED", last(said),
                   seconds=round(time.monotonic() - start, 1))
        print(f"\n{kind}: {last(said)}", flush=True)


def torch(owner, kinds, options, report):
    if not torch_is_here("torch", report):
        return
    if not importlib.util.find_spec("pytest"):
        return report.add("torch", "-", "-", "skipped", "there is no pytest")
    names = {}
    for file in ("torch_gpu_test.py", "vllm_gpu_test.py", *["pinned_gpu_test.py"] * ("pinned" in kinds)):
        with open(os.path.join(HERE, file)) as f:
            names |= dict.fromkeys(re.findall(r"^def (test_\w+)", f.read(), re.MULTILINE), file)

    def test(kind, name):
        start = time.monotonic()
        code, said = run([sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider",
                          f"{os.path.join(HERE, names[name])}::{name}"], 150, SHARE_TEST_KINDS=kind)
        return code, said, round(time.monotonic() - start, 1)

    for kind in kinds:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            results = [(name, threads.submit(test, kind, name)) for name in names]
        rows = []
        for name, result in results:
            code, said, seconds = result.result()
            word = {0: "ok", 77: "skipped"}.get(code, "FAILED")
            why = [line for line in said.splitlines() if line.startswith(("E  ", "SKIPPED"))]
            detail = "" if word == "ok" else " ".join((why[-1] if why else last(said)).split())
            report.add("torch", kind, name, word, detail, seconds=seconds)
            rows.append((name, word, seconds, detail))
        print(f"\n{kind}: torch")
        for name, word, seconds, detail in rows:
            print(f"{name:66} {word:8} {seconds:5} s  {detail}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kinds", default="vmm,mempool")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--only", default=",".join(FRAMEWORKS))
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if set(parts) - set(PARTS):
        parser.error(f"the parts are {', '.join(PARTS)}")

    import libshare

    with libshare.connect("embedded") as owner:
        if not any(d.get("device") for d in owner.inspect("devices")):
            print("SKIPPED: there is no GPU here")
            return 77
        report = Report(options.json)
        start = time.monotonic()
        for part in parts:
            globals()[part](owner, options.kinds.split(","), options, report)
        counts = report.counts
        if counts["ok"] + counts["FAILED"] == 0:
            print("SKIPPED: there is none of these frameworks here")
            return 77
        print(f"\n{counts['ok']} ok, {counts['FAILED']} failed, {counts['skipped']} skipped "
              f"({', '.join(parts)}; {time.monotonic() - start:.0f} s)")
        return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
