#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every block of code or commands that the documents for users show is run as it stands, or is found in a
table below, which says which other test runs it, or why none can. A block that is neither fails this test;
so does a line of the table that no block is like. And docs/platforms.md has the tiers that sharectl doctor tells, and
what is shown of versions is the present one.

usage: documents_test.py [DOCUMENT...], with SHARE_TEST_BIN and SHARE_TEST_SOURCE set
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE, BIN = os.environ["SHARE_TEST_SOURCE"], os.environ["SHARE_TEST_BIN"]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/python.md", "docs/operating.md", "docs/containers.md",
             "docs/bridge.md"]

REGISTRY = "it needs a registry"
SUITE = "scripts/test does the same, and runs this test"
# Document, how a command begins (or the heading that it is below), and the test that runs it, or why none
# does. What begins with sudo needs root, changes the machine, and is not here.
ELSEWHERE = [
    ("README.md", "scripts/demo", "demo_test"),
    ("README.md", "scripts/test", SUITE),
    ("README.md", "scripts/make-wheel && pip install", "wheel_test"),
    ("README.md", "pip install numpy", REGISTRY),
    ("README.md", "scripts/prepare build", "prepare_test"),
    ("README.md", "cmake --preset release -DCMAKE_INSTALL_PREFIX", "demo_test"),
    ("README.md", "cmake --build --preset release", "demo_test"),
    ("CONTRIBUTING.md", "scripts/test", SUITE),
    ("CONTRIBUTING.md", "cmake --preset", SUITE),
    ("CONTRIBUTING.md", "cmake --build --preset", "partial_build_test"),
    ("CONTRIBUTING.md", "ctest --preset", SUITE),
    ("docs/python.md", "scripts/make-wheel", "wheel_test"),
    ("docs/python.md", "pip install dist/libshare-*.whl", "wheel_test"),
    ("docs/python.md", "pip install numpy", REGISTRY),
    ("docs/python.md", "python -m libshare.bench", "bench_test"),
    ("docs/python.md", "vllm serve", "it needs vLLM; python/vllm_engine_test runs engines where there is one"),
    ("docs/operating.md", "## A night on call", "night_test"),
    ("docs/operating.md", "sharectl drop-client 4711", "sharectl_act_test"),
    ("docs/containers.md", "podman build", REGISTRY),
    ("docs/containers.md", "podman run", REGISTRY),
]
# Blocks that are no commands, by how they begin, and the test that looks whether they are right.
SHOWN = [
    ("README.md", "demo: ok kind=host", "demo_test"),
    ("README.md", "find_package(share ", "install_test"),
    ("docs/operating.md", "2026-11-22T14:03:07.123+0100 share-broker: info:", "log_lines_test"),
    ("docs/bridge.md", '{"layer": 7, "bridge":', "bridge_names_test"),
]
# Code, by its language.
CODE = [
    ("README.md", "c", "readme_test"),
    ("README.md", "cuda", "readme_test"),
    ("README.md", "python", "python/readme_test"),
    ("docs/python.md", "python", "python/readme_test"),
]


class Block:
    def __init__(self, document, line, language, heading):
        self.document, self.line, self.language, self.heading = document, line, language, heading
        self.lines = []

    def where(self):
        return f"{self.document}:{self.line}"

    def commands(self):
        """Each with what it prints, where that is shown: those of a block with prompts, or all lines."""
        if any(line.startswith("$ ") for line in self.lines):
            found = []
            for line in self.lines:
                if line.startswith("$ "):
                    found.append((line[2:], []))
                else:
                    found[-1][1].append(line)
            return found
        return [(line, []) for line in self.lines if line.strip() and not line.startswith("#")]


def blocks(document, text):
    """Those between fences, and those that are indented and no part of a list."""
    block, fenced, in_list, heading, before = None, False, False, "", ""
    for number, line in enumerate(text.split("\n"), 1):
        fence = re.match(r"^\s*```(\w*)", line)
        if fenced:
            if fence:
                yield block
                block, fenced = None, False
            else:
                block.lines.append(line)
        elif block and (line.startswith("    ") or not line):
            block.lines.append(line[4:])
        else:
            if block:
                yield block
                block = None
            if fence:
                block, fenced = Block(document, number, fence[1], heading), True
            elif line.startswith("    ") and not before and not in_list:
                block = Block(document, number, "", heading)
                block.lines.append(line[4:])
            elif line.startswith("## "):
                heading = line
            if line and not line.startswith(" "):
                in_list = bool(re.match(r"([-*]|\d+\.) ", line))
        before = line
    if block:
        yield block


class Scene:
    """A broker with what the documents tell of: pools, names, tokens, and members of channels."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="share-doc-", dir="/tmp")
        self.socket = self.folder + "/s"
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "SHARE_SOCKET": self.socket,
                            "LC_ALL": "C.UTF-8", "SHARE_MAGAZINES": "0"}
        os.symlink(SOURCE + "/examples", self.folder + "/examples")
        self.processes = []

    def start(self, *command, environment=None, **how):
        process = subprocess.Popen(command, cwd=self.folder, text=True, env=environment or self.environment, **how)
        self.processes.append(process)
        return process

    def serve(self, socket, environment=None):
        self.start("share-broker", f"--socket={socket}", f"--config={SOURCE}/tests/themes/cli/broker.json",
                   environment=environment, stderr=open(socket + ".log", "a"))
        self.until(lambda: self.sharectl(socket, "status").returncode == 0)

    def sharectl(self, socket, *words):
        return subprocess.run(["sharectl", f"--socket={socket}", *words], text=True, capture_output=True,
                              env=self.environment)

    def until(self, condition):
        while not condition():
            time.sleep(0.01)

    def set(self):
        """What is told by numbers and paths there, and what it is here."""
        self.serve(self.socket)
        for what in ([], ["channels"], ["ends"]):
            hold = self.start("cli-hold", *what, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert hold.stdout.readline() == "ready\n"
        status = dict(line.split(None, 1) for line in self.sharectl(self.socket, "status").stdout.splitlines())
        token = self.sharectl(self.socket, "--no-headings", "tokens").stdout.split()[0]
        return {"/run/share/broker.sock": self.socket, "5288": status["keeper"], "5290": status["pid"],
                "5300": status["pid"], "0x100000003": token}

    def end(self):
        for process in reversed(self.processes):
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    pipe.close()
            process.terminate()
        for process in self.processes:
            process.wait()
        # a broker whose keeper the commands have killed
        keeper = re.search(r"^keeper +(\d+)$", self.sharectl(self.socket, "status").stdout, re.MULTILINE)
        if keeper:
            os.kill(int(keeper[1]), signal.SIGTERM)
            self.until(lambda: self.sharectl(self.socket, "status").returncode != 0)
        shutil.rmtree(self.folder)


def comparable(line):
    """Without numbers and what depends on them, and without the widths of columns."""
    line = re.sub(r"(0x[0-9a-f]+|\d+(\.\d+)*)([KMG]iB)?", "N", line)
    return re.sub(r"\s+", " ", re.sub(r"s\b|\b(is|are)\b", "", line)).strip()


def is_missing(command):
    """A program of others that this machine lacks."""
    for part in re.split(r"[|;]|&&", re.sub(r"'[^']*'|\"[^\"]*\"|#.*|\$\(", "", command)):
        word = (part.split() or [":"])[0]
        if re.fullmatch(r"[a-z][a-z-]*", word) and not word.startswith("share") and \
                subprocess.run(["bash", "-c", f"type {word}"], capture_output=True).returncode != 0:
            return word
    return None


def run(block, commands):
    """What is wrong when these are typed one after the other, in one shell where nothing is printed."""
    scene = Scene()
    try:
        facts = scene.set()
        if not any(shown for _, shown in commands):
            commands = [("\n".join(command for command, _ in commands), [])]
        for command, shown in commands:
            for told, fact in facts.items():
                command = re.sub(rf"(?<!\w){re.escape(told)}(?!\w)", fact, command)
                shown = [line.replace(told, fact) for line in shown]
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", command], text=True, cwd=scene.folder,
                                  env=scene.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=60)
            first = done.stdout.split("\n")[0]
            if done.returncode != 0:
                yield f"{block.where()}: exit code {done.returncode} of {command}\n{done.stdout}"
            elif shown and comparable(shown[0]) != comparable(first):
                yield f"{block.where()}: {command}\n  shows {shown[0]}\n  prints {first}"
    finally:
        scene.end()


def run_bridge(block, commands):
    """Two hosts that share a network: what says "on gpu2" becomes gpu2's, with a broker of its own."""
    if not shutil.which("share-bridge", path=BIN):
        print(f"{block.where()}: there is no share-bridge here")
        return
    alone = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--uts"]
    if subprocess.run([*alone, "sh", "-c", "type ip hostname"], capture_output=True).returncode != 0:
        print(f"{block.where()}: no namespaces can be made here")
        return
    scene = Scene()
    both = None
    try:
        for host in ("gpu1", "gpu2"):
            scene.serve(f"{scene.folder}/{host}")
        with open(scene.folder + "/hosts", "w") as f:
            f.write("127.0.0.1 localhost gpu1 gpu2\n")
        script = ["set -e", "ip link set lo up", "mount --bind hosts /etc/hosts"]
        bridges = [command for command, _ in commands if command.startswith("share-bridge")]
        script += [command for command, _ in commands if command not in bridges]
        for host, command in zip(("gpu1", "gpu2"), bridges):
            inside = shlex.quote(f"hostname {host}; exec {command}")
            script.append(f"SHARE_SOCKET=$PWD/{host} unshare --uts bash -c {inside} &")
        script.append("wait")
        both = scene.start(*alone, "bash", "-c", "\n".join(script), environment={**scene.environment, "UCX_TLS": "tcp"},
                           stderr=open(scene.folder + "/log", "w"), start_new_session=True)
        yield from linked(scene, block)
    finally:
        if both:
            os.killpg(both.pid, signal.SIGKILL)
        scene.end()


def linked(scene, block):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        said = [scene.sharectl(f"{scene.folder}/{host}", "--no-headings", "bridges").stdout
                for host in ("gpu1", "gpu2")]
        if "gpu2" in said[0] and "gpu1" in said[1]:
            return
        time.sleep(0.05)
    yield f"{block.where()}: the bridges have no link\n{''.join(said)}{open(scene.folder + '/log').read()}"


RUN_BY = {"docs/bridge.md": run_bridge}


def is_test(name):
    folder, base = os.path.split(name)
    return any(base + end in files for path, _, files in os.walk(f"{SOURCE}/tests") for end in (".sh", ".c", ".py")
               if path.endswith(folder))


class Table:
    """Lines of a table that have been of use."""

    def __init__(self, rows):
        self.rows, self.used = rows, set()

    def has(self, document, *texts):
        found = {row for row in self.rows if row[0] == document and any(text.startswith(row[1]) for text in texts)}
        self.used |= found
        return bool(found)

    def wrong(self, documents):
        for row in self.rows:
            if row[0] in documents and row not in self.used:
                yield f"{row[0]}: nothing there is like '{row[1]}', which stands in a table of this test"
            if re.fullmatch(r"[a-z/_]+", row[2]) and not is_test(row[2]):
                yield f"there is no test {row[2]}"


def check(texts):
    """What is wrong with these documents; each with its text."""
    elsewhere, shown, code = Table(ELSEWHERE), Table(SHOWN), Table(CODE)
    for document, text in texts.items():
        for block in blocks(document, text):
            if block.language in ("c", "cuda", "python"):
                if not code.has(document, block.language):
                    yield f"{block.where()}: no test is named that compiles or runs this {block.language}"
                continue
            if shown.has(document, block.lines[0]) or elsewhere.has(document, block.heading):
                continue
            left = [(command, output) for command, output in block.commands()
                    if not command.startswith("sudo") and not elsewhere.has(document, command)]
            for command, _ in list(left):
                if is_missing(command):
                    print(f"{block.where()}: there is no {is_missing(command)} here for: {command}")
            left = [pair for pair in left if not is_missing(pair[0])]
            if left:
                print(f"{block.where()}: {len(left)} of {len(block.commands())} commands are run")
                yield from RUN_BY.get(document, run)(block, left)
    for table in (elsewhere, shown, code):
        yield from table.wrong(texts)


def other_tiers(document, source):
    """Rows that sharectl doctor has, and the document has not, or in another tier."""
    told = re.findall(r'\{"([^"]+)",\s*([A-Z]+)\}', source)
    if len(told) < 10:
        yield "the rows of tools/doctor/platform.c are not found"
    for name, tier in told:
        if f"\n| {name} | {tier.lower()} |" not in document:
            yield f"docs/platforms.md has no row '{name}' that is {tier.lower()}"


def other_commands(texts):
    """What is called a command of sharectl within a sentence, and is none."""
    told = subprocess.run([f"{BIN}/sharectl", "--help"], text=True, capture_output=True, check=True).stdout
    known = re.findall(r"^  ([a-z][a-z-]+)  ", told, re.MULTILINE)
    for document, text in texts.items():
        for command in re.findall(r"`sharectl\s+([a-z][a-z-]*)", text):
            if command not in known:
                yield f"{document}: sharectl has no command {command}"


def other_versions(texts):
    """What is shown is of this version, or of the next one, to which it is upgraded."""
    with open(f"{SOURCE}/CMakeLists.txt") as f:
        version = re.search(r"^project\(share VERSION (\d+)\.(\d+)\.(\d+)", f.read(), re.MULTILINE)
    major, minor, patch = map(int, version.groups())
    right = (f"{major}.{minor}.{patch}", f"{major}.{minor + 1}.0")
    for document, text in texts.items():
        for shown in re.findall(r"(?:\bversion +|_)(\d+\.\d+\.\d+)\b", text):
            if shown not in right:
                yield f"{document}: shows version {shown}; this is {right[0]}, and {right[1]} comes next"


NOTICED = {
    "```\nsharectl no-such-report\n```\n": "exit code",
    "Text:\n\n    sharectl pools --no-such-option\n": "exit code",
    "```\n$ sharectl pools\nNAME KIND\n```\n": "shows NAME KIND",
    "```\n$ sharectl revoke 0x99\n```\n": "exit code",
    "```rust\nlet c = connect();\n```\n": "exit code",
    "```c\nshare_connect(NULL, &c);\n```\n": "no test is named",
}


def main():
    wanted = sys.argv[1:] or DOCUMENTS
    texts = {document: open(f"{SOURCE}/{document}").read() for document in wanted}
    wrong = list(check(texts))
    platforms = [open(f"{SOURCE}/{path}").read() for path in ("docs/platforms.md", "tools/doctor/platform.c")]
    wrong += other_tiers(*platforms)
    if len(list(other_tiers(platforms[0], platforms[1].replace("TESTED}", "NOT}")))) < 3:
        wrong.append("not noticed: another tier")
    others = ["CHANGELOG.md", "docs/configuration.md", "docs/security.md", "docs/bridge.md", "python/libshare/vllm.py"]
    wrong += other_commands(texts | {path: open(f"{SOURCE}/{path}").read() for path in others})
    if not list(other_commands({"docs/other.md": "until `sharectl\ndestroy-pool`"})):
        wrong.append("not noticed: another command")
    wrong += other_versions(texts | {"docs/sharectl.1": open(f"{SOURCE}/docs/sharectl.1").read()})
    if not list(other_versions({"docs/other.md": "version            0.1.0"})):
        wrong.append("not noticed: another version")
    # and what is wrong is noticed
    for text, said in NOTICED.items():
        if not any(said in line for line in check({"docs/other.md": text})):
            wrong.append(f"not noticed: {text}")
    print("\n".join(wrong))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
