#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# What help() says of the types in C, as macros for their tables: the docstrings of the stub, and in
# front of those of functions their signatures, without types.
#
# usage: describe.py STUB >HEADER

import ast
import json
import pathlib
import sys


def described(name, node, arguments):
    """A docstring as an extension has it. @arguments: those to show; None: it is not called."""
    if not arguments:
        return ast.get_docstring(node)
    for each in ast.walk(arguments):
        if isinstance(each, ast.arg):
            each.annotation = None
    first = arguments.posonlyargs or arguments.args
    if first and first[0].arg == "self":
        del first[0]
    return f"{name}({ast.unparse(arguments)})\n--\n\n{ast.get_docstring(node)}"


def members(node):
    """(name, docstring) of a class and of what it has."""
    found = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    yield node.name, described(node.name, node, getattr(found.get("__init__"), "args", None))
    for name, item in found.items():
        if ast.get_docstring(item):
            arguments = None if item.decorator_list else item.args  # of a property there are none
            yield f"{node.name}_{name}", described(name, item, arguments)
    for item, following in zip(node.body, node.body[1:]):
        if isinstance(item, ast.AnnAssign) and isinstance(following, ast.Expr):
            yield f"{node.name}_{item.target.id}", ast.get_docstring(ast.Module([following], []))


print("/* Made of the stub by describe.py. */")
for node in ast.parse(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")).body:
    if isinstance(node, ast.ClassDef):
        all_of_it = list(members(node))
    elif isinstance(node, ast.FunctionDef):
        all_of_it = [(node.name, described(node.name, node, node.args))]
    else:
        continue
    for name, text in all_of_it:
        if text:
            print(f"#define DOC_{name.strip('_').upper()} {json.dumps(text, ensure_ascii=False)}")
