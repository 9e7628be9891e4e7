#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# The rooms of the house and who may enter which:
#
#   base                    knows nothing of ours; wire, pages, memory -> base; ring -> pages, base
#   broker, agent, libshare -> base, wire, pages, memory; libshare alone -> ring
#   tools, bridge, examples, bench, python  -> <share/...> and themselves; bench also those below, for its
#              floors, and bridge memory and base, for copies that go on beside it
#   docs                    -> wire, pages and memory, whose tables it prints
#   include/share           -> <share/...>
#   tests                   -> everything; nothing -> tests
#
# Large rooms have sub-rooms, from below to above, as KNOWS has them: each may include headers of
# those that are named beside it, and no others. A header that lies in the room itself is for all of
# it and below it ("broker/*.h"), a source there is above all ("broker/*.c"). From outside only such
# headers are included. And of the headers of those that it may include, a sub-room includes what
# FACES has, and nothing else. These have at most 100 lines each; and what a sub-room's files alone
# know of each other is in one header, inside.h.
#
# The sources of most rooms (ORDERED) have an order, too: none calls one that calls it, whatever is in
# between. And in no room two sources have something static of one name, so a name that is found in a room
# is what it is there, and a room can be compiled as one (SHARE_BUILD_ROOMS).
#
# And four things that one room (or file) only knows: libevent the broker (and the exporter, which serves
# HTTP with it, and the bridge), SCM_RIGHTS wire/packet.c, mappings of what other processes have as
# well base/system/mapping.c (and the benchmarks and examples), CUDA memory/cuda and memory/gpu, the examples
# and bench/driver*; and libshare, which programs with more rights than who has started them link as
# well, reads the environment by secure_getenv(). Tests are free to play a hostile peer or an event
# loop, so these four are not asked of them. Comments may say anything.
#
# The rules are first tried on a tree that breaks each of them: a rule that finds nothing there
# would find nothing here.
#
# usage: rooms_test.py [ROOT]             says what is not as it should be
#        rooms_test.py --arrows [ROOT]    says which sub-rooms know one above, and by how many includes

import collections
import pathlib
import re
import sys
import tempfile

# The rooms whose headers a room may include.
NEIGHBOURS = {
    "agent": "agent base wire pages memory",
    "base": "base",
    "bench": "bench base wire pages memory",
    "bridge": "bridge base memory",
    "broker": "broker base wire pages memory",
    "docs": "docs base wire pages memory",
    "examples": "examples",
    "include": "",
    "libshare": "libshare base wire pages ring memory",
    "memory": "memory base",
    "pages": "pages base",
    "python": "python",
    "ring": "ring base pages",
    "tests": "agent base bench bridge broker docs examples include libshare memory pages python ring tests tools wire",
    "tools": "tools",
    "wire": "wire base",
}

# The sub-rooms whose headers a sub-room may include, beside its own.
KNOWS = {
    "base/system": "",
    "base/*.c": "base/*.h",
    "broker/config": "broker/rights",
    "broker/journal": "broker/log",
    "broker/keeper": "broker/log",
    "broker/keeper/process": "broker/log broker/keeper",
    "broker/accounts": "broker/config broker/log broker/journal",
    "broker/*.h": "broker/config",
    "broker/socket": "broker/keeper broker/*.h",
    "broker/client": "broker/rights broker/log broker/journal broker/keeper broker/accounts broker/*.h"
                     " broker/socket",
    "broker/reply": "broker/rights broker/config broker/log broker/accounts broker/*.h broker/client",
    "broker/monitor": "broker/rights broker/accounts broker/*.h broker/client broker/reply",
    "broker/device": "broker/log broker/journal broker/keeper broker/accounts broker/*.h broker/client"
                     " broker/reply",
    "broker/order": "broker/log broker/journal broker/keeper broker/accounts broker/*.h broker/client"
                    " broker/reply broker/monitor",
    "broker/memory": "broker/rights broker/config broker/suballocator broker/log broker/journal"
                     " broker/keeper broker/accounts broker/*.h broker/socket broker/client broker/reply"
                     " broker/monitor broker/device broker/order",
    "broker/pools": "broker/config broker/log broker/journal broker/accounts broker/*.h broker/socket"
                    " broker/client broker/reply broker/device broker/order broker/memory",
    "broker/buffer": "broker/suballocator broker/log broker/journal broker/accounts broker/*.h"
                     " broker/client broker/reply broker/monitor broker/device broker/order"
                     " broker/memory broker/pools",
    "broker/channel": "broker/rights broker/suballocator broker/log broker/journal broker/keeper broker/accounts"
                      " broker/*.h broker/client broker/monitor broker/order broker/memory broker/pools"
                      " broker/buffer",
    "broker/orphan": "broker/log broker/journal broker/accounts broker/*.h broker/client"
                     " broker/monitor broker/memory broker/buffer broker/channel",
    "broker/membership": "broker/rights broker/journal broker/keeper broker/log broker/accounts"
                         " broker/*.h broker/client broker/reply broker/device broker/order"
                         " broker/memory broker/pools broker/buffer broker/channel broker/orphan",
    "broker/names": "broker/rights broker/log broker/journal broker/accounts broker/*.h broker/client"
                    " broker/reply broker/monitor broker/order broker/memory broker/buffer",
    "broker/request": "broker/keeper broker/*.h broker/client broker/reply broker/order broker/memory"
                      " broker/orphan broker/names",
    "broker/report": "broker/journal broker/keeper broker/accounts broker/*.h broker/client broker/reply"
                     " broker/device broker/order broker/memory broker/pools broker/buffer"
                     " broker/channel broker/membership broker/names",
    "broker/*.c": "broker/*.h",
    "broker/life": "broker/config broker/log broker/journal broker/keeper broker/accounts broker/*.h"
                   " broker/socket broker/client broker/reply broker/monitor broker/device broker/order"
                   " broker/memory broker/pools broker/buffer broker/channel broker/membership"
                   " broker/names broker/request broker/report",
    "libshare/handle": "libshare/program",
    "libshare/client": "libshare/program libshare/handle",
    "libshare/order": "libshare/program libshare/client",
    "libshare/segment": "libshare/program libshare/client libshare/order",
    "libshare/buffer": "libshare/program libshare/client libshare/order libshare/segment",
    "libshare/pool": "libshare/program libshare/client libshare/order libshare/segment libshare/buffer",
    "libshare/handover": "libshare/program libshare/client libshare/order libshare/segment libshare/buffer",
    "libshare/channel": "libshare/program libshare/client libshare/order libshare/buffer",
    "libshare/sender": "libshare/program libshare/client libshare/order libshare/segment libshare/buffer"
                       " libshare/channel",
    "libshare/receiver": "libshare/program libshare/client libshare/order libshare/segment libshare/buffer"
                         " libshare/channel libshare/sender",
    "libshare/*.c": "libshare/client libshare/order libshare/segment libshare/buffer libshare/handover"
                    " libshare/channel libshare/sender libshare/receiver",
    "libshare/service": "libshare/program libshare/client libshare/buffer libshare/channel libshare/sender"
                        " libshare/receiver",
    "bridge/data": "bridge/*.h",
    "bridge/names": "bridge/*.h bridge/data",
    "bridge/channels": "bridge/*.h bridge/data",
    "bridge/services": "bridge/*.h bridge/data",
    "bridge/link": "bridge/*.h bridge/data bridge/names bridge/channels bridge/services",
    "bridge/*.c": "bridge/*.h bridge/data bridge/names bridge/channels bridge/services",
    "python/src/base": "",
    "python/src/order": "python/src/base",
    "python/src/array": "python/src/base python/src/order",
    "python/src/channel": "python/src/base python/src/order python/src/array",
    "python/src/client": "python/src/base python/src/order python/src/array",
    "python/src": "python/src/base python/src/order python/src/array python/src/channel python/src/client",
    "bench/driver": "bench/*.h",
    "bench/peers": "bench/*.h",
    "bench/load": "bench/*.h",
    "bench/memory": "bench/*.h bench/driver",
    "bench/order": "bench/*.h bench/driver",
    "bench/channel": "bench/*.h bench/driver bench/peers",
    "bench/bridge": "bench/*.h",
    "bench/survival": "bench/*.h bench/load bench/channel",
    "bench/*.c": "bench/*.h",
    "ring/producer": "ring/*.h",
    "ring/consumer": "ring/*.h",
    "ring/*.c": "ring/*.h",
    "memory/host": "memory/*.h",
    "memory/cuda": "memory/*.h",
    "memory/gpu": "memory/*.h memory/cuda",
    "memory/*.c": "memory/*.h",
    "tools/doctor": "tools/*.h",
    "tools/exporter": "tools/*.h",
    "tools/top": "tools/*.h",
    "tools/sharectl": "tools/*.h tools/doctor tools/top",
    "tools/*.c": "tools/*.h",
}

# The headers of a sub-room that others may include: its face. What else it has is for itself. Where
# nothing is said, all are.
FACES = {
    "libshare/program": "copies embedded error range struct",
    "libshare/handle": "hazard",
    "libshare/client": "client dispatch inspect operation room rpc",
    "libshare/order": "gpu_late order",
    "libshare/segment": "segment",
    "libshare/buffer": "buffer grant magazine messages uses",
    "libshare/pool": "",  # nobody needs one
    "libshare/handover": "handover",
    "libshare/channel": "channel loan lock members message role state wait",
    "libshare/sender": "sender",
    "libshare/receiver": "receiver",
    "libshare/service": "",  # nobody needs one
    "bridge/data": "data memory message",
    "bridge/names": "names",
    "bridge/channels": "channels",
    "bridge/services": "services",
    "bridge/link": "",  # link.h is for all
    "ring/producer": "",
    "ring/consumer": "",
    "python/src/base": "args core object",
    "python/src/order": "order",
    "python/src/array": "array by_address dlpack dtype",
    "python/src/channel": "channel",
    "python/src/client": "client",
    "broker/log": "log",
    "broker/journal": "generations journal object record record_types",
    "broker/keeper": "blame common crash keeper kept silence",
    "broker/keeper/process": "",
    "broker/rights": "access name_owner principal right",
    "broker/config": "change config lists machine reader",
    "broker/accounts": "account charge fair_share price turns",
    "broker/socket": "closer peer socket_path",
    "broker/client": "client clients connection conversation listener records",
    "broker/reply": "deferred request",
    "broker/monitor": "monitor",
    "broker/device": "agent choice device ipc_event",
    "broker/order": "fence order records",
    "broker/memory": "client_memory gated memory pool pool_object pool_user prefault records segment segment_cost"
                     " writer",
    "broker/pools": "adopted open_pools pool_records pools supply trim",
    "broker/suballocator": "block suballocator",
    "broker/buffer": "buffer grant lease records scrub",
    "broker/names": "names name token",
    "broker/channel": "channel channel_object claim entry member page progress records role",
    "broker/orphan": "orphan",
    "broker/membership": "membership",
    "broker/request": "dispatch",
    "broker/report": "report",
    "broker/life": "",  # nobody needs one
    "memory/cuda": "context device_open driver",
    "memory/gpu": "vmm_property",  # for tests and benchmarks
    "tools/doctor": "doctor",
    "tools/exporter": "",
    "tools/top": "top",
    "tools/sharectl": "",
}

# The rooms whose sources have an order.
ORDERED = """agent base base/system bench bench/channel bench/load bridge bridge/channels
    memory memory/cuda memory/gpu memory/host pages python/src/array python/src/base python/src/client python/src/order
    ring ring/consumer ring/producer tools tools/doctor tools/exporter tools/sharectl tools/top wire
    libshare/buffer libshare/channel libshare/client libshare/handle libshare/handover libshare/order libshare/pool
    libshare/program libshare/receiver libshare/segment libshare/sender libshare/service
    broker/accounts broker/channel broker/client broker/config broker/device broker/journal broker/keeper
    broker/keeper/process broker/life broker/log broker/membership broker/memory broker/monitor broker/names
    broker/order broker/orphan broker/pools broker/reply broker/report broker/request broker/rights broker/socket
    broker/suballocator""".split()

LIBEVENT = re.compile(r"event2/.*|event\.h|evutil\.h")
ENDINGS = (".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".in")

def code_of(text):
    """Its lines without comments, line by line as they were."""
    def blank(found):
        return " " + "\n" * found[0].count("\n") if found[0].startswith("/*") else ""
    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.DOTALL).split("\n")

def sub_room(path):
    """That of a file or header; None where there are none."""
    room, _, rest = path.partition("/")
    if room not in ("base", "bench", "bridge", "broker", "libshare", "memory", "python", "ring", "tools") or not rest:
        return None
    return path.rpartition("/")[0] if "/" in rest else f"{room}/*{pathlib.PurePath(path).suffix}"

class Tree:
    """Each file is read once; offence() collects what is wrong."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.offences = []
        self.code = {}
        self.includes = {}
        for room in NEIGHBOURS:
            for path in sorted((self.root / room).rglob("*")):
                if path.name.endswith(ENDINGS) and path.is_file():
                    name = path.relative_to(self.root).as_posix()
                    self.code[name] = code_of(path.read_text())
                    self.includes[name] = [found[1] for found in (
                        re.match(r'\s*#\s*include\s*([<"][^>"]*[>"])', line)
                        for line in self.code[name]) if found]

    def offence(self, file, what):
        self.offences.append(f"{file}: {what}")

    def check_include(self, file, room, header):
        inner = header[1:-1]
        of = inner.partition("/")[0] if "/" in inner else None
        if inner.startswith("../") or "/../" in inner:
            self.offence(file, f"{header} climbs out of its room")
        elif of == "share":
            if header[0] != "<":
                self.offence(file, f"{header} is an installed header: <{inner}>")
        elif LIBEVENT.fullmatch(inner):
            if room not in ("broker", "bridge", "examples", "tests") and not file.startswith("tools/exporter/"):
                self.offence(file, f"{header}: only the broker, the bridge and the exporter know libevent")
        elif of is None:
            # examples are installed, and built where there is no such root
            if header[0] != "<" and room != "examples":
                self.offence(file, f"{header}: includes start at the root")
        elif (re.match("memory/.*/", inner) and room not in ("memory", "tests")
                and not file.startswith("bench/driver")) or (
                re.match("(bridge|broker|libshare|python/src)/.*/", inner) and room not in (of, "tests")):
            self.offence(file, f"{header} is inside of {of}")
        elif of in NEIGHBOURS and of not in NEIGHBOURS[room].split():
            self.offence(file, f"{header}: {room} does not know {of}")
        elif header[0] == '"' and of not in NEIGHBOURS:
            self.offence(file, f"{header}: there is no such room")
        elif header[0] == "<" and of in NEIGHBOURS:
            self.offence(file, f'{header} is not installed: "{inner}"')

    def forbid(self, file, pattern, what, lines=None):
        for n, line in enumerate(lines or self.code[file], 1):
            if re.search(pattern, line, re.ASCII):
                self.offence(file, f"{n}: {what}: {line}")

    def check_words(self, file, room):
        if file != "wire/packet.c":
            self.forbid(file, r"\bSCM_RIGHTS\b", "only wire/packet.c passes descriptors")
        if room == "libshare":
            self.forbid(file, r"(^|\W)getenv *\(", "the environment may be a stranger's: secure_getenv()")
        if file != "base/system/mapping.c" and room not in ("bench", "examples"):
            for call in re.findall(r"\bmmap *\([^;]*", " ".join(self.code[file])):
                # private memory of zeros is for anybody
                if not re.search("MAP_PRIVATE[^,]*MAP_ANONYMOUS", call):
                    self.offence(file, f"only base/system/mapping.c maps what others have as well: {call}")
        if file.startswith(("memory/cuda/", "memory/gpu/", "bench/driver")) or room == "examples":
            return
        # a text may name what the code must not call
        self.forbid(file, r'include *[<"](cuda|nvml)|\b(cu|cuda)[A-Z][A-Za-z0-9]+\b|\bCU[a-z_][A-Za-z0-9_]*\b',
                    "only memory/cuda, memory/gpu, examples and bench/driver* know CUDA",
                    [line if re.search("# *include", line) else re.sub('"[^"]*"', '""', line)
                     for line in self.code[file]])
        # the doctor asks NVML, without a broker and an agent, what may be wrong with them
        if file != "tools/doctor/gpus.c":
            self.forbid(file, '"lib(cuda|nvidia)', "only memory/cuda, memory/gpu, examples and the doctor load drivers")

    def between(self):
        """(from, to, file, header) of each include from one sub-room of a room into another."""
        for file, headers in self.includes.items():
            of = sub_room(file)
            for header in headers:
                to = sub_room(header[1:-1])
                if of and to and of != to and of.partition("/")[0] == to.partition("/")[0]:
                    yield of, to, file, header[1:-1]

    def arrows(self):
        """Those that the table does not name."""
        return [arrow for arrow in self.between() if arrow[1] not in KNOWS.get(arrow[0], "").split()]

    def check_faces(self):
        for _, to, file, header in self.between():
            name = pathlib.PurePath(header).stem
            if to in FACES and name not in FACES[to].split():
                self.offence(file, f'"{header}" is {to}\'s own')
        for room in sorted({sub_room(file) for file in self.code} - {None}):
            for name in FACES.get(room, "").split():
                # split("\n") has one more than there are lines
                lines = len(self.code.get(f"{room}/{name}.h", "")) - 1
                if lines > 100:
                    self.offence(f"{room}/{name}.h", f"{lines} lines; a face has at most 100")
        for file in self.code:
            if re.fullmatch(r"(bridge|broker|libshare|python/src)/\w+/\w*_inside\.h", file):
                self.offence(file, "a sub-room has one inside, inside.h")

    def calls(self):
        """Of each source of the rooms that have an order: the others there that it calls, of what it may
        know: functions of two programs may have one name."""
        defined = {}
        texts = {file: "\n".join(lines) for file, lines in self.code.items()
                 if re.fullmatch(f"({'|'.join(ORDERED)})/\\w+\\.c", file)}
        for file, text in texts.items():
            for function in re.findall(r"^(?!static)\w[^;{}()]*\b(\w+)\([^;{}]*\)\s*\{", text, re.MULTILINE):
                defined[file.partition("/")[0], function] = file
        return {file: {defined[room, name] for name in re.findall(r"\b(\w+)\(", text)
                       for room in NEIGHBOURS[file.partition("/")[0]].split() if (room, name) in defined} - {file}
                for file, text in texts.items()}

    def check_calls(self):
        calls = self.calls()
        while any(not calls[file] & calls.keys() for file in calls):
            calls = {file: others for file, others in calls.items() if others & calls.keys()}
        for file, others in calls.items():
            self.offence(file, "calls others in a circle: "
                         + " ".join(sorted(others & calls.keys())))

    def check_statics(self):
        """In a room each name says one thing. (Benchmarks have functions of the same names.)"""
        of = {}
        for file in sorted(self.code):
            room = file.rpartition("/")[0]
            if not file.endswith(".c") or file.partition("/")[0] in ("bench", "examples", "tests"):
                continue
            text = re.sub(r"__attribute__\(\(.*?\)\) ?|_Thread_local|(?<=struct) \{\n.*?^\}|(?<=enum) \{[^{}]*\}", "", "\n".join(self.code[file]),
                          flags=re.DOTALL | re.MULTILINE)
            names = re.findall(r"^static [^;={()]*?\b(\w+)(?:\[[^;=]*)?\s*[;=({]|^(?:struct|union|enum) (\w+) \{|^#define (\w+)",
                               text, re.MULTILINE)
            for name in sorted(set(map("".join, names)) - set(re.findall(r"^#undef (\w+)", text, re.MULTILINE))):
                first = of.setdefault((room, name), file)
                if first != file:
                    self.offence(file, f"{name} is something else in {first}")

    def check(self):
        for file, headers in self.includes.items():
            room = file.partition("/")[0]
            for header in headers:
                self.check_include(file, room, header)
            if room != "tests":
                self.check_words(file, room)
        for of, to, file, header in self.arrows():
            self.offence(file, f'"{header}": {of} does not know {to}')
        self.check_faces()
        self.check_calls()
        self.check_statics()
        return self.offences

# A tree with an offence in each file called bad* and in the face of broker/log, which is too long,
# and none in the others.
OFFENCES = {
    "void one(void)\n{\n\tother();\n}": "ring/bad1.c",
    "int other(int a,\n\t  int b)\n{\n\tone();\n}": "ring/bad2.c",
    "void third(void)\n{\n\tfourth();\n}": "libshare/sender/bad1.c",
    "void fourth(void)\n{\n\tthird();\n}": "libshare/receiver/bad2.c",
    "void fifth(void)\n{\n\tsixth();\n}": "broker/memory/bad1.c",
    "void sixth(void)\n{\n\tfifth();\n}": "broker/memory/bad2.c",
    "void seventh(void)\n{\n\teighth();\n}": "broker/memory/good1.c",
    "void eighth(void)\n{\n\tseventh();\n}": "libshare/sender/good2.c",
    "static void alone(void)\n{\n\tlast();\n}": "ring/good1.c",
    "void last(void)\n{\n}": "ring/good2.c",
    "static int find(int a,\n\t\tint b)\n{\n}": "tools/a_good.c tools/bad4.c bench/good4.c bench/good5.c",
    "static struct {\n\tint n;\n} counts[] = {1};": "agent/a_good.c agent/bad5.c wire/good.c",
    '#include "wire/wire.h"': "memory/bad.c tools/bad.c examples/bad.c python/bad.c include/share/bad.h",
    '#include "memory/kind.h"': "wire/bad1.c tools/bad3.c python/bad2.c",
    '#include "broker/config/config.h"': "wire/bad2.c libshare/bad1.c agent/bad1.c docs/bad.c",
    '#include "libshare/client/client.h"': "broker/bad1.c bench/bad2.c tools/bad2.c",
    '#include "tests/tree.h"': "broker/bad2.c examples/bad2.c",
    "#include <event2/event.h>": "libshare/bad2.c wire/bad3.c agent/bad2.c",
    "#include <wire/wire.h>": "broker/bad3.c",
    '#include "../wire/wire.h"': "broker/bad4.c",
    '#include "wire.h"': "wire/bad4.c",
    '#include "share/share.h"': "broker/bad5.c",
    "int type = SCM_RIGHTS; /* why */": "wire/bad5.c",
    "#include <cuda.h>": "agent/bad3.c python/bad3.c",
    "int r = cuInit(0);": "libshare/bad3.c memory/bad2.c",
    "/* a */ CUstream s; /* b */": "broker/bad6.c",
    'dlopen("libcuda.so.1", RTLD_NOW);': "wire/bad6.c",
    'path = getenv("PATH");': "libshare/bad4.c broker/good4.c",
    '#include "broker/broker.h"': "agent/bad4.c",
    '#include "memory/cuda/driver.h"': "libshare/bad5.c bench/bad4.c memory/host/bad.c bench/driver_good.c",
    '#include "memory/gpu/vmm_property.h"': "memory/cuda/bad.c broker/bad7.c memory/gpu/good2.c",
    '#include "memory/cuda/functions.h"': "memory/gpu/bad.c memory/cuda/good2.c",
    '#include "broker/client/client.h"': "broker/config/bad.c broker/log/bad.c",
    '#include "broker/names/name.h"': "broker/client/bad.c",
    '#include "libshare/order/order.h"': "libshare/client/bad.c",
    '#include "libshare/client/inside.h"': "libshare/order/bad.c",
    "int inner;": "broker/client/bad_inside.h",
    "p = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);":
        "libshare/bad6.c broker/log/bad2.c base/system/mapping.c bench/good3.c",
    "p = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);": "base/bad.c",
    "p = mmap(NULL, 1,\nPROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);": "libshare/good2.c",
    'path = secure_getenv("PATH");': "libshare/good.c",
    "#include <share/share.h>\n#include <stdio.h>\n#include <sys/types.h>":
        "tools/good.c examples/good.c bench/good.c broker/good.c python/good.c",
    '#include <event2/event.h>\n#include "wire/wire.h"\n#include "memory/kind.h"': "broker/good2.c",
    "/*\n * SCM_RIGHTS is passed by others, cuInit() called by others.\n */\n// #include <cuda.h>\n"
    "int cursor, custom, CURRENT;": "broker/good3.c",
    "#include <cuda.h>\nCUresult r;\nvoid *cuInit;": "memory/cuda/good.c memory/gpu/good.c examples/good2.c",
    '#include "broker/config/config.h"\nSCM_RIGHTS': "tests/good.c",
    "SCM_RIGHTS": "wire/packet.c",
    '#include "wire/wire.h"\n#include "memory/kind.h"': "bench/good2.c",
    '#include "broker/broker.h"\n#include "broker/log/log.h"': "broker/client/good.c",
    '#include "libshare/client/client.h"\n#include "libshare/order/inside.h"': "libshare/order/good.c",
    "\n".join(["int line;"] * 101): "broker/log/log.h broker/log/sink.h",
    "\n".join(["int line;"] * 100): "broker/client/client.h",
    "CUresult r;": "bench/bad3.c bench/driver_stream.c bench/driver.c",
}

def try_rules():
    """What the rules miss in such a tree, and what they find for nothing."""
    expected = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for text, files in OFFENCES.items():
            for file in files.split():
                path = pathlib.Path(scratch, file)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text + "\n")
                if path.name.startswith("bad") or file == "broker/log/log.h":
                    expected[file] += 1
        found = collections.Counter(offence.partition(":")[0] for offence in Tree(scratch).check())
    return ([f"missed: {file}" for file in expected - found]
            + [f"found for nothing: {file}" for file in found - expected])

def main(arguments):
    only_arrows = arguments[:1] == ["--arrows"]
    arguments = arguments[only_arrows:]
    root = pathlib.Path(arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent)
    if only_arrows:
        counts = collections.Counter(arrow[:2] for arrow in Tree(root).arrows())
        for (of, to), n in sorted(counts.items()):
            print(of, to, n)
        return 0
    wrong = try_rules()
    if wrong:
        print("the rules do not find what they are for:", *wrong, sep="\n")
        return 1
    tree = Tree(root)
    if tree.check() or not tree.code:
        print(*(tree.offences or [f"{root} is not a tree of ours"]), sep="\n")
        return 1
    print("every room keeps to itself")
    return 0

sys.exit(main(sys.argv[1:]))
