# SPDX-License-Identifier: MIT
"""Puts what help() says of methods in Python into this tree's stub, for editors, which show that of a stub only. With the
package on the path, as it was built of this stub (help() of what is in C comes from there):

    python tests/python/stub_docs.py
"""

import ast
import inspect
import os
import textwrap

import libshare
from libshare import _core

STUB = os.path.join(os.path.dirname(__file__), "../../python/libshare/_core.pyi")


def _doc(thing):
    return inspect.cleandoc(getattr(thing, "__doc__", None) or "")


def _derived(classes, base, name):
    """The classes of the package that have a member by a class that is only the stub's."""
    for node in classes.values():
        if any(isinstance(b, ast.Name) and b.id == base for b in node.bases):
            if all(getattr(item, "name", None) != name for item in node.body):
                yield from [node.name] if hasattr(_core, node.name) else _derived(classes, node.name, name)


def _of(classes, of, name):
    """What is said of a member of a class; of one that is only the stub's, all classes say the same."""
    having = [of] if hasattr(_core, of) else _derived(classes, of, name)
    said, = {_doc(inspect.getattr_static(getattr(_core, one), name, None)) for one in having}
    return said


def _lines(doc, indent):
    # an escape or three quotes in it would end it, or be something else
    doc = doc.replace("\\", "\\\\").replace('"""', "'''")
    quoted = f'"""{doc}"""' if not doc.endswith('"') else f'"""{doc} """'
    return textwrap.indent(quoted, indent).splitlines()


def _docstring(body):
    """The lines of the docstring that a body begins with, if it has one."""
    head = body[0]
    if isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant) and isinstance(head.value.value, str):
        return head.lineno - 1, head.end_lineno
    return None


def described(source):
    """The stub with its docstrings as help() has them."""
    tree = ast.parse(source)
    lines = source.splitlines()
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    edits = []  # from line, to line, what is there then

    def function(node, doc, indent):
        if doc:
            last = lines[node.body[0].lineno - 1]
            if node.body[0].value.value is ...:
                at = node.body[0].lineno - 1
                assert last.endswith(": ..."), last
                edits.append((at, at + 1, [last.removesuffix(" ..."), *_lines(doc, indent)]))
            else:
                edits.append((node.body[0].lineno - 1, node.body[0].end_lineno, _lines(doc, indent)))

    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            function(node, _doc(getattr(_core, node.name)), "    ")
        if not isinstance(node, ast.ClassDef):
            continue
        doc = _doc(getattr(_core, node.name, None) or getattr(libshare, node.name, None)) if not node.name.startswith("_") else ""
        old = _docstring(node.body)
        if doc:
            if len(node.body) == 1 and not old:  # class A(B): ...
                at = node.lineno - 1
                edits.append((at, at + 1, [lines[at].removesuffix(" ..."), *_lines(doc, "    ")]))
            else:
                begin, end = old or (node.body[0].lineno - 1 - len(getattr(node.body[0], "decorator_list", ())),) * 2
                edits.append((begin, end, _lines(doc, "    ")))
        for i, item in enumerate(node.body):
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and not item.name.startswith("_"):
                function(item, _of(classes, node.name, item.name), "        ")
            elif isinstance(item, ast.AnnAssign) and hasattr(_core, node.name) and not item.target.id.startswith("_"):
                doc = _of(classes, node.name, item.target.id)
                if doc:
                    following = _docstring(node.body[i + 1:i + 2]) if i + 1 < len(node.body) else None
                    edits.append((*(following or (item.end_lineno,) * 2), _lines(doc, "    ")))
    for begin, end, new in sorted(edits, key=lambda e: e[:2], reverse=True):
        lines[begin:end] = new
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with open(STUB, encoding="utf-8") as f:
        text = f.read()
    with open(STUB, "w", encoding="utf-8") as f:
        f.write(described(text))
