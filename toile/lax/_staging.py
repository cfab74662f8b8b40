"""Staging of the functions that control flow carries, and the checks on their results.

A function is traced once per kind of arguments and kept while it lives, unless it closes over
values of an outer trace. Mismatched structures and types are reported with all their paths.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import config, dtypes
from toile.engine.arrays import Array, ConcreteArray
from toile.engine.avals import Aval, aval_of
from toile.engine.conversion import as_array
from toile.engine.errors import TreeStructureError
from toile.engine.keypaths import keystr
from toile.engine.program import Program, derive, evaluate, trace_program
from toile.engine.source import here
from toile.engine.tracing import Tracer, state
from toile.engine.treeerrors import equality_errors
from toile.engine.trees import flatten, flatten_with_path, structure, unflatten
from toile.parallel.varying import beginning_as
from toile.primitives.elementwise import convert
from toile.staging.flattening import FlatFunction, name_of

_cache: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def leaf(x: Any) -> Any:
    return x if isinstance(x, Array) else as_array(x)


def is_concrete(x: Any) -> bool:
    """Whether an array has a value that Python may look at."""
    return isinstance(x, ConcreteArray) or (isinstance(x, Tracer) and x.concrete() is not None)


def flat_arrays(tree: Any) -> tuple[list[Any], Any]:
    """The leaves of a tree as arrays, and its structure."""
    leaves, treedef = flatten(tree)
    return [leaf(x) for x in leaves], treedef


def stage(
    fun: Callable[..., Any], in_tree: Any, avals: Sequence[Aval], values: Sequence[Any] = (),
    kind: str = "",
) -> tuple[Program, list[Any], Any]:
    """Program, closed-over values and result structure of `fun(*args)`; in_tree is that of args.

    `values` are those that the inputs have at first; inside of shard_map they tell what varies."""
    if state.inlines:
        flat = FlatFunction(fun, _call_tree(in_tree))
        with beginning_as(values):
            program, consts = trace_program(flat, avals, name_of(fun), kind=kind)
        return program, consts, flat.out_tree
    key = (in_tree, tuple(avals), config.trace_context(), state.axes)
    try:
        known = _cache.setdefault(fun, {})
    except TypeError:
        known = {}
    found = known.get(key)
    if found is None:
        flat = FlatFunction(fun, _call_tree(in_tree))
        program, consts = trace_program(flat, avals, name_of(fun), kind=kind)
        found = program, consts, flat.out_tree
        if not any(isinstance(c, Tracer) for c in consts):
            known[key] = found
    return found


def _call_tree(args_tree: Any) -> Any:
    """The structure of (args, {}) from that of args."""
    args = unflatten(args_tree, [0] * args_tree.num_leaves)
    return structure((args, {}))


def check_same_structure(
    what: str, first: Any, second: Any, names: tuple[str, str], both: str | None = None
) -> None:
    """Raise unless two structures are equal, telling both; `both` is what they are together."""
    if first != second:
        subject = f"{what} {both or f'{names[0]} and {names[1]}'}"
        found = list(equality_errors(_dummy(first), _dummy(second)))
        lines = [
            f"\n  {names[0]}{keystr(p)} is a {_leaf_text(one)} but {names[1]}{keystr(p)} is a "
            f"{_leaf_text(other)}, so {why}."
            for p, one, other, why in found[:4]
        ]
        raise TreeStructureError(
            f"{subject} must have the same pytree structure, but they differ: got {names[0]} "
            f"{first} and {names[1]} {second} (return the same tuples, lists and dicts from both)."
            f"{''.join(lines)}{here()}"
        )


class _Leaf:
    """What stands for an array when structures are compared."""


def _dummy(tree: Any) -> Any:
    return unflatten(tree, [_Leaf()] * tree.num_leaves)


def _leaf_text(text: str) -> str:
    return "pytree leaf" if "_Leaf" in text else text


def check_same_types(
    what: str, tree: Any, needed: Sequence[Aval], got: Sequence[Aval], names: tuple[str, str],
    both: str | None = None,
) -> None:
    """Raise unless shapes and dtypes agree leaf by leaf, listing all that differ."""
    bad = [
        (i, a, b) for i, (a, b) in enumerate(zip(needed, got, strict=True))
        if a.shape != b.shape or a.dtype != b.dtype
    ]
    if not bad:
        return
    paths = [keystr(p) for p, _ in flatten_with_path(unflatten(tree, [0] * len(needed)))[0]]
    lines = [
        f"  {names[0].format(path=paths[i], at=paths[i] and f' at path {paths[i]}')} has type "
        f"{a.str_short()} but {names[1]} has type {b.str_short()}, so {_why(a, b)} do not match."
        for i, a, b in bad[:6]
    ]
    hint = "convert with .astype, or start with an array of the dtype and shape that comes out"
    raise TreeStructureError(
        f"{what} {both or f'{names[0]} and {names[1]} must have equal types,'} but they differ:\n"
        + "\n".join(lines) + f"\n(the shapes and dtypes must agree: {hint}){here()}"
    )


def _why(a: Aval, b: Aval) -> str:
    if a.shape != b.shape:
        return "the shapes" if a.dtype == b.dtype else "the dtypes and shapes"
    return "the dtypes"


CARRY = "body function carry input and carry output"


def check_carry(
    what: str, fun: Any, tree: Any, avals: Sequence[Aval], out_tree: Any, outs: Sequence[Aval]
) -> None:
    """Raise unless a loop's carry comes out as it went in."""
    check_same_structure(what, tree, out_tree, (f"the input carry {_first(fun)}",
                                                "the corresponding output carry"), CARRY)
    component = "component " if tree.children() else ""
    name = f"The input carry {component}{_first(fun)}{{path}}"
    check_same_types(what, tree, avals, outs,
                     (name, "the corresponding output carry component"),
                     f"{CARRY} must have equal types,")


def _first(fun: Any) -> str:
    """The name of a function's first parameter."""
    try:
        return next(iter(inspect.signature(fun).parameters), "")
    except (TypeError, ValueError):
        return ""


def agree_on_weak(avals: Sequence[Aval], outs: Sequence[Aval]) -> list[Aval] | None:
    """Input avals that a loop's results fit, when weak ones have another dtype; None if all fit.

    A weak input with a strong result of its dtype stays weak, as in JAX."""
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
    """Arrays converted to the dtypes and weak types of avals."""
    return [
        x if aval_of(x).weak_type == a.weak_type and x.dtype == a.dtype
        else convert(x, a.dtype, a.weak_type)
        for x, a in zip(xs, avals, strict=True)
    ]


def strengthened(program: Program, avals: Sequence[Aval]) -> Program:
    """The Program with its outputs converted to the dtypes and weak types of `avals`."""
    pairs = zip(program.out_avals, avals, strict=True)
    if all(o.dtype == a.dtype and o.weak_type == a.weak_type for o, a in pairs):
        return program

    def run(*xs: Any) -> list[Any]:
        return with_avals([leaf(o) for o in evaluate(program, xs)], avals)

    key = ("strengthened", tuple(avals))
    return program.memoized(key, lambda: derive(run, program.in_avals, program.name))
