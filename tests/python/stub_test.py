# SPDX-License-Identifier: MIT
"""The stub says what there is, and there is what it says; everything public is described."""

import ast
import inspect
import os
import re
import subprocess
import sys

import pytest

import libshare
from libshare import _core, docs
from stub_docs import described

STUB = os.path.join(os.path.dirname(libshare.__file__), "_core.pyi")


def declared():
    """Members by class, with those of the stub's own base classes."""
    tree = ast.parse(open(STUB).read())
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

    def members(node):
        found = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id in classes:
                found |= members(classes[base.id])
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found[item.name] = item
            elif isinstance(item, ast.AnnAssign):
                found[item.target.id] = item
        return found

    return {name: members(node) for name, node in classes.items()}


def public(cls):
    return {name for c in cls.__mro__[:-1] for name in vars(c) if not name.startswith("_")}


def test_the_stub_and_the_types_have_the_same_members():
    stub = declared()
    types = {name: cls for name, cls in vars(_core).items() if isinstance(cls, type) and name != "Messages"}
    for name, cls in types.items():
        assert name in stub, name
        said = {m for m in stub[name] if not m.startswith("_")}
        assert said == public(cls), name
        for m in stub[name]:
            assert hasattr(cls, m) or m in ("__buffer__", "__init__"), (name, m)


def test_the_stub_s_arguments_are_those_of_the_functions():
    for name, members in declared().items():
        cls = getattr(_core, name, None)
        for m, node in members.items():
            if cls is None or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or m.startswith("__"):
                continue
            if node.decorator_list:
                continue
            try:
                there = inspect.signature(getattr(cls, m))
            except ValueError:
                continue
            named = {a.arg for a in node.args.args + node.args.kwonlyargs + node.args.posonlyargs} - {"self"}
            known = {p.name for p in there.parameters.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)} - {"self"}
            open_ended = any(p.kind == p.VAR_KEYWORD for p in there.parameters.values())
            assert known <= named or not known - named, (name, m, known - named)
            assert open_ended or named == known, (name, m, named ^ known)


def test_everything_public_is_described():
    for name in libshare.__all__:
        thing = getattr(libshare, name)
        assert thing.__doc__, name
        if isinstance(thing, type) and thing.__module__ == "libshare._core":
            for m in public(thing):
                member = inspect.getattr_static(thing, m)
                assert getattr(member, "__doc__", None), (name, m)


def test_the_stub_says_what_help_says():
    with open(STUB, encoding="utf-8") as f:
        text = f.read()
    assert described(text) == text, "tests/python/stub_docs.py writes it anew"
    for name, members in declared().items():
        for m, node in members.items():
            if hasattr(_core, name) and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not m.startswith("_"):
                assert ast.get_docstring(node), (name, m)


def test_the_stub_names_every_report(client):
    what = declared()["Client"]["inspect"].args.args[1].annotation
    reports = [constant.value for constant in what.slice.elts]
    assert len(reports) == 14
    for report in reports:
        if report != "devices":  # where there is no driver for GPUs, this is an error
            client.inspect(report)


def test_every_option_of_a_pool_is_described():
    for option in declared()["Client"]["pool"].args.kwonlyargs:
        assert re.search(rf"\b{option.arg}\b", libshare.Client.pool.__doc__), option.arg


CHECKED = """
import libshare
c = libshare.connect()
with c.pool().consumer("x") as rx:
    for m in rx:
        print(m.array.shape)
try:
    c.ping()
except libshare.OwnerDiedError as e:
    if e.message is not None:
        e.message.ack()
print(libshare.__version__ + "", libshare.weights.attach_weights(c, "w").is_current())
libshare.conect()
libshare.weights.attach(c)
m.aray
"""


def test_a_type_checker_knows_what_there_is(tmp_path):
    (tmp_path / "checked.py").write_text(CHECKED)
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "checked.py"],
                          cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = re.findall(r"^checked.py:\d+: error: (.*?)[;\n ]*(?:$|maybe|\[)", done.stdout, re.MULTILINE)
    assert said == ['Module has no attribute "conect"', 'Module has no attribute "attach"',
                    '"Message" has no attribute "aray"'], done.stdout


def test_the_guide_and_the_headers_are_there():
    assert docs.guide().startswith("# Python\n")
    texts = docs.headers()
    assert {"share.h", "channel.h", "service.h", "error.h"} <= texts.keys()
    functions = {f for text in texts.values() for f in re.findall(r"^(?:[a-z].*[ *])(share_[a-z0-9_]+)\(", text, re.MULTILINE)}
    assert len(functions) > 90
    for function in functions:
        first = docs.find(function).partition("\n\n")[2]
        assert first.startswith("/*") and function in first.partition("*/")[2].partition(";")[0], function
    assert "zstd" in docs.find("tables") and docs.find("channel.h") == texts["channel.h"]
    with pytest.raises(KeyError):
        docs.find("nonsense")


@pytest.mark.parametrize("arguments, words, code", [
    ([], "# Python", 0), (["share_lookup"], "@retval", 0), (["--help"], "libshare.docs share_alloc", 0), (["nonsense"], "help(libshare)", 1)])
def test_the_guide_is_shown(arguments, words, code):
    done = subprocess.run([sys.executable, "-m", "libshare.docs", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == code and words in done.stdout
