"""The source text of functions that exported NumPy files contain.

`closure(names)` returns the text of functions of `toile.exporting.numpy_code`, and of everything
that they use. This module may import the modules of `numpy_code`.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable

from toile.exporting.numpy_code import arrays, decompositions, special

MODULES = (arrays, special, decompositions)


@functools.cache
def definitions() -> dict[str, tuple[str, frozenset[str]]]:
    """Return the text of each function and constant, and the names that it uses, in order."""
    found = {}
    for module in MODULES:
        text = inspect.getsource(module)
        for node in ast.parse(text).body:
            name = _defined(node)
            if name:
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {name}
                found[name] = (_text(text, node), frozenset(names))
    return found


def _defined(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _text(text: str, node: ast.stmt) -> str:
    return "\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno])


def closure(names: Iterable[str]) -> str:
    """Return the text of functions and of everything that they use."""
    table = definitions()
    wanted: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in table and name not in wanted:
            wanted.add(name)
            waiting += table[name][1]
    blocks = [text for name, (text, _) in table.items() if name in wanted]
    return "\n\n\n".join(blocks)
