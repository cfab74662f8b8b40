"""Modules as HTML: a collapsible tree of submodules with their fields and, if bound, variables.

For a bound module, only `setup` is run, as in `dir`. Submodules that a call creates are known only
by their variables, so they are shown with names, shapes and counts but without a class. Module
loads this file in notebooks. This file does not import Module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from toile.displays.array_trees import (
    MOST_LINES,
    Branch,
    branch_html,
    branch_of,
    leaf_table,
    shared_lines,
)
from toile.displays.markup import bold, box, clipped, code, fold, pale, paragraph, quantity
from toile.linen.adoption import suffixes_and_values
from toile.linen.reprs import _value_text

MOST_FIELD = 60  # characters of a field in a title
MOST_FIELDS = 200  # characters of all fields in a title
MOST_DEFAULTS = 400  # characters of the fields that have their defaults
NOT_FIELDS = ("parent", "name")


def module_html(module: Any, lines: int = MOST_LINES) -> str:
    """The HTML of a module, with the first level expanded."""
    title, inner = _entry(module, _variables(module), lines)
    return box(fold(title, inner, is_open=True))


def _is_module(value: Any) -> bool:
    return hasattr(type(value), "_call_wrapped_method")


def _is_bound(module: Any) -> bool:
    """Whether `bind` made the module. Other modules with a scope are in the middle of a call."""
    return module.scope is not None and module.scope.get_flag("interactive", False)


def _variables(module: Any) -> dict[str, Branch]:
    """The variables in the scope of a module that `bind` made, by collection."""
    if not _is_bound(module):
        return {}
    scope = module.scope
    found = {col: scope._collection(col) for col in scope.root._variables}
    return {col: branch_of(dict(inside)) for col, inside in found.items() if inside}


def _below(variables: dict[str, Branch], name: str) -> dict[str, Branch]:
    """The variables of a submodule."""
    return {c: b.branches[name] for c, b in variables.items() if name in b.branches}


def _entry(module: Any, variables: dict[str, Branch], lines: int) -> tuple[str, str]:
    """The title of a module, and the HTML below it."""
    if _is_bound(module):
        module._try_setup()
    own, defaults = _fields(module)
    kind = type(module).__name__
    title = f"{bold(kind)}{code(f'({clipped(own, MOST_FIELDS)})')} {_counts(variables)}"
    if not lines:
        return title, ""
    rest = paragraph(pale(f"defaults: {clipped(defaults, MOST_DEFAULTS)}")) if defaults else ""
    leaves = {
        (name if col == "params" else f"{col}/{name}"): leaf
        for col, branch in variables.items() for name, leaf in branch.leaves.items()
    }  # fmt: skip
    shown = min(len(leaves), lines)
    table = leaf_table(leaves, shown)
    return title, rest + table + _children(module, variables, lines - shown)


def _children(module: Any, variables: dict[str, Branch], lines: int) -> str:
    """The collapsible HTML of the submodules, including those known only by their variables."""
    modules = _submodules(module)
    names = dict.fromkeys([*modules, *(n for b in variables.values() for n in b.branches)])

    def draw(name: str, lines: int) -> str:
        below = _below(variables, name)
        label = pale(f"{clipped(name, MOST_FIELD)}: ")
        if name in modules:
            title, inner = _entry(modules[name], below, lines)
            return fold(label + title, inner)
        return fold(label + _counts(below), _variables_html(below, lines))

    return shared_lines(names, draw, lines, "submodule")


def _variables_html(variables: dict[str, Branch], lines: int) -> str:
    """The variables of a submodule whose class is not known."""
    if not lines:
        return ""
    if list(variables) == ["params"]:
        return branch_html(variables["params"], lines)
    share = lines // max(len(variables), 1)
    return "".join(
        fold(f"{bold(col)} {pale(branch.total)}", branch_html(branch, share))
        for col, branch in variables.items()
    )


def _counts(variables: dict[str, Branch]) -> str:
    parts = [
        quantity(branch.size, "parameter") if col == "params" else f"{branch.size:,} in {col}"
        for col, branch in variables.items()
    ]
    return pale(", ".join(parts)) if parts else ""


def _submodules(module: Any) -> dict[str, Any]:
    """The submodules of a bound module, or the modules in the fields of an unbound module."""
    if module.scope is not None:
        return {n: m for n, m in module._state.children.items() if _is_module(m)}
    return {
        f"{f.name}{suffix}": value
        for f in _shown_fields(module)
        for suffix, value in suffixes_and_values(module.__dict__.get(f.name))
        if _is_module(value)
    }


def _shown_fields(module: Any) -> list[Any]:
    if not dataclasses.is_dataclass(module):
        return []
    return [f for f in dataclasses.fields(module) if f.repr and f.name not in NOT_FIELDS]


def _fields(module: Any) -> tuple[str, str]:
    """The fields that differ from their defaults, and the others, as text."""
    own: list[str] = []
    others: list[str] = []
    for f in _shown_fields(module):
        value = module.__dict__.get(f.name)
        text = f"{f.name}={clipped(_short(value), MOST_FIELD)}"
        (others if _is_default(f, value) else own).append(text)
    return ", ".join(own), ", ".join(others)


def _is_default(f: Any, value: Any) -> bool:
    if f.default is dataclasses.MISSING:
        return False
    if value is f.default:
        return True
    return not callable(value) and type(value) is type(f.default) and (
        repr(value) == repr(f.default))


def _short(value: Any) -> str:
    """The value of a field as text; modules by their class, arrays by dtype and shape."""
    if _is_module(value):
        return type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_short(v)}" for k, v in value.items()) + "}"
    if type(value) in (list, tuple):
        inside = ", ".join(map(_short, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return _value_text(value)
