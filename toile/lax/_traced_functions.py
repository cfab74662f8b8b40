"""Staging of the functions passed to control flow, and checks on their results.

A function is traced once for each combination of argument types. The program is kept as long as the
function exists, unless the function closes over values of an outer trace. Errors about mismatched
structures and types list the paths of the mismatches.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from toile.engine import config, dtypes
from toile.engine.arrays import Array, ConcreteArray
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.errors import TreeStructureError
from toile.engine.keypaths import keystr
from toile.engine.program import Program, derive, evaluate, trace_with_refs
from toile.engine.refs import Ref, refuse_changed, values_of
from toile.engine.source import here
from toile.engine.trace import Tracer, state
from toile.engine.treeerrors import equality_errors
from toile.engine.trees import flatten, flatten_with_path, structure, unflatten
from toile.parallel.varying_values import beginning_as
from toile.primitives.elementwise import convert
from toile.staging.flat_functions import FlatFunction, name_of

_cache: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def leaf(x: Any) -> Any:
    return x if isinstance(x, Array) else as_array(x)


def is_concrete(x: Any) -> bool:
    """Whether the value of an array is available to Python."""
    return isinstance(x, ConcreteArray) or (isinstance(x, Tracer) and x.concrete() is not None)


def flat_arrays(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree as arrays, and its structure."""
    leaves, treedef = flatten(tree)
    return [leaf(x) for x in leaves], treedef


def stage(fun: Callable[..., Any], in_tree: Any, avals: Sequence[Aval], values: Sequence[Any] = (),
          kind: str = "") -> tuple[Program, list[Any], Any]:
    """The program, closed-over values and result structure of `fun(*args)`.

    `in_tree` is the structure of `args`.

    `values` are the initial values of the inputs; inside shard_map they determine which inputs
    vary."""
    found = stage_with_refs(fun, in_tree, avals, values, kind)
    if found.written or found.inline:
        raise refuse_changed((*found.written, *found.consts)[0], name_of(fun))
    return found.program, values_of(found.consts), found.out_tree


class StagedFunction(NamedTuple):
    """A traced function (`program.Staged`) with the structure of its result."""

    program: Program
    consts: list[Any]
    out_tree: Any
    written: list[Ref]
    inline: bool


def stage_with_refs(fun: Callable[..., Any], in_tree: Any, avals: Sequence[Aval],
                    values: Sequence[Any] = (), kind: str = "") -> StagedFunction:
    """`stage` for a caller that can store the new values of Refs."""
    if state.inlines:
        flat = FlatFunction(fun, _call_tree(in_tree))
        with beginning_as(values):
            made = trace_with_refs(flat, avals, name_of(fun), kind=kind)
        return StagedFunction(made.program, made.consts, flat.out_tree, made.written, made.inline)
    key = (in_tree, tuple(avals), config.trace_context(), state.axes)
    try:
        known = _cache.setdefault(fun, {})
    except TypeError:
        known = {}
    found = known.get(key)
    if found is None:
        flat = FlatFunction(fun, _call_tree(in_tree))
        made = trace_with_refs(flat, avals, name_of(fun), kind=kind)
        found = StagedFunction(made.program, made.consts, flat.out_tree, made.written, made.inline)
        if not any(_is_traced(c) for c in (*made.consts, *made.written)):
            known[key] = found
    return found


def _is_traced(x: Any) -> bool:
    """Whether a value is a tracer, or a Ref that was created in a traced function."""
    return isinstance(x, Tracer) or (isinstance(x, Ref) and x._trace is not None)


def _call_tree(args_tree: Any) -> Any:
    """The structure of (args, {}) for a given structure of args."""
    args = unflatten(args_tree, [0] * args_tree.num_leaves)
    return structure((args, {}))


Types = tuple[Sequence[Aval], Sequence[Aval]]


def check_same_structure(subject: str, first: Any, second: Any, types: Types,
                         names: tuple[str, str], hint: str) -> None:
    """Raise unless two structures are equal, showing both trees and listing where they differ.

    Names may contain placeholders for the path: `{path}`, `{at}` and `{component}`. `types` are the
    leaves of both trees."""
    if first == second:
        return
    lines = []
    for path, one, other, why in list(equality_errors(_dummy(first), _dummy(second)))[:_LISTED]:
        left, right = (_placed(name, keystr(path)) for name in names)
        lines.append(f"{left} is a {_leaf_text(one)} but {right} is a {_leaf_text(other)}, so "
                     f"{why}")
    rows = _rows(first, types[0], second, types[1])
    raise TreeStructureError(f"{subject} must have the same pytree structure, but they differ:\n\n"
                             f"{_listed(lines)} {hint} (return the same tuples, lists and dicts)"
                             f"{_side_by_side(rows, names)}{here()}")


_LISTED = 3  # differences in one message, and rows of the table below it


def _rows(first: Any, lefts: Sequence[Aval], second: Any,
          rights: Sequence[Aval]) -> list[tuple[str, str, str]]:
    """(path, type in the first tree, type in the second) of the leaves of two trees."""
    one, other = (
        {keystr(path): aval.str_short()
         for (path, _), aval in zip(flatten_with_path(_dummy(tree))[0], avals, strict=True)}
        for tree, avals in ((first, lefts), (second, rights))
    )
    return [(path, one.get(path, "-"), other.get(path, "-")) for path in {**one, **other}]


def _side_by_side(rows: list[tuple[str, str, str]], names: tuple[str, str]) -> str:
    """Two trees as a table; arrows mark the leaves that differ, which come before all others."""
    if len(rows) < 2:  # the sentence says it all
        return ""
    titles = [_placed(name, "").removeprefix("the ").removeprefix("corresponding ").strip()
              for name in names]
    chosen = sorted(rows, key=lambda row: row[1] == row[2])[:_LISTED]
    shown = [("", *titles)] + [row for row in rows if row in chosen]
    widths = [max(len(row[i]) for row in shown) for i in range(3)]
    out = ""
    for i, row in enumerate(shown):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        mark = "->" if i and row[1] != row[2] else "  "
        out += f"\n  {mark} {cells.rstrip()}"
    left = len(rows) - len(chosen)
    return out + (f"  (and {left} more)" if left else "")


def _placed(name: str, path: str) -> str:
    """A name for an error message, with the path to a part of the named value."""
    return name.format(path=path, at=path and f" at path {path}", component=path and "component ")


def _listed(lines: list[str]) -> str:
    """Sentences that each describe one difference."""
    return " ".join(
        f"The {line[4:]}." if line.startswith("the ") else f"{line}." for line in lines)


class _Leaf:
    """A placeholder for an array when structures are compared."""


def _dummy(tree: Any) -> Any:
    return unflatten(tree, [_Leaf()] * tree.num_leaves)


def _leaf_text(text: str) -> str:
    return "pytree leaf" if "_Leaf" in text else text


def check_same_types(subject: str, tree: Any, needed: Sequence[Aval], got: Sequence[Aval],
                     names: tuple[str, str], hint: str) -> None:
    """Raise unless shapes and dtypes agree leaf by leaf, listing all that differ."""
    bad = [
        (i, a, b) for i, (a, b) in enumerate(zip(needed, got, strict=True))
        if a.shape != b.shape or a.dtype != b.dtype
    ]
    if not bad:
        return
    rows = _rows(tree, needed, tree, got)
    lines = [
        f"{_placed(names[0], rows[i][0])} has type {a.str_short()} but {names[1]} has type "
        f"{b.str_short()}, so {_why(a, b)} do not match"
        for i, a, b in bad[:_LISTED]
    ]
    raise TreeStructureError(f"{subject}\n\n{_listed(lines)} {hint} (convert with .astype, or "
                             f"start with an array of the resulting dtype and shape)"
                             f"{_side_by_side(rows, names)}{here()}")


def _why(a: Aval, b: Aval) -> str:
    if a.shape != b.shape:
        return "the shapes" if a.dtype == b.dtype else "the dtypes and shapes"
    return "the dtypes"


def check_carry(what: str, fun: Any, tree: Any, avals: Sequence[Aval], out_tree: Any,
                outs: Sequence[Aval]) -> None:
    """Raise unless a loop's carry keeps its structure, shapes and dtypes."""
    subject = f"{what} body function carry input and carry output"
    name = f"the input carry {{component}}{_first(fun)}{{path}}"
    check_same_structure(subject, tree, out_tree, (avals, outs),
                         (name, "the corresponding component of the carry output"),
                         "Return the carry as it came in.")
    check_same_types(f"{subject} must have equal types, but they differ:", tree, avals, outs,
                     (name, "the corresponding output carry component"),
                     "The carry must come out with the shapes and dtypes it went in with.")


def _first(fun: Any) -> str:
    """The name of a function's first parameter."""
    try:
        return next(iter(inspect.signature(fun).parameters), "")
    except (TypeError, ValueError):
        return ""


def agree_on_weak(avals: Sequence[Aval], outs: Sequence[Aval]) -> list[Aval] | None:
    """Avals for a loop's inputs, promoted where a weak input and its result differ in dtype.

    The result is None if no input changes. A weak input with a strong result of the same dtype
    stays weak, as in JAX."""
    changed = False
    found = []
    for a, o in zip(avals, outs, strict=True):
        if a.weak_type and o.dtype != a.dtype:
            dtype = dtypes.promote_pair(a.dtype, True, o.dtype, o.weak_type)[0]
            found.append(Aval(a.shape, dtype, False))
            changed = True
        else:
            found.append(a)
    return found if changed else None


def with_avals(xs: Sequence[Any], avals: Sequence[Aval]) -> list[Any]:
    """The arrays, converted to the dtypes and weak types of `avals`."""
    return [
        x if aval_of(x).weak_type == a.weak_type and x.dtype == a.dtype
        else convert(x, a.dtype, a.weak_type)
        for x, a in zip(xs, avals, strict=True)
    ]


def strengthened(program: Program, avals: Sequence[Aval]) -> Program:
    """The program with its outputs converted to the dtypes and weak types of `avals`."""
    pairs = zip(program.out_avals, avals, strict=True)
    if all(o.dtype == a.dtype and o.weak_type == a.weak_type for o, a in pairs):
        return program

    def run(*xs: Any) -> list[Any]:
        return with_avals([leaf(o) for o in evaluate(program, xs)], avals)

    key = ("strengthened", tuple(avals))
    return program.memoized(key, lambda: derive(run, program.in_avals, program.name))
