"""Random keys that are used twice: what each operation does to keys, and which ones are used.

A `Signature` says which keyed operands an operation uses up, which results are new keys, and which
results are an operand's keys again. That of a Program follows from those of its equations; a key
that it uses up twice is an error. `run` notes the uses of concrete keys while `debug_key_reuse` is
on. Operations without a rule use up all keys they are given, and return used ones. May import
control and below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from toile.control.call import Call, Carrier
from toile.control.callbacks import DebugCallback
from toile.control.cond import Cond
from toile.control.custom import CustomCall
from toile.control.linear_solve import LinearSolve
from toile.control.remat import RematLinear
from toile.control.scan import Scan
from toile.control.while_loop import LinearWhile, While
from toile.engine import dtypes
from toile.engine.arrays import KeyArray
from toile.engine.avals import Aval, aval_of
from toile.engine.errors import KeyReuseError
from toile.engine.operation import Operation, run_eager
from toile.engine.program import Captured, Equation, Program, Var
from toile.engine.source import here, user_source
from toile.primitives.barriers import StopGradient
from toile.primitives.bits import Eq, Ne, key_eq
from toile.primitives.choices import ConvertElementType
from toile.primitives.families import BroadcastInDim, Identity, Reshape, Transpose
from toile.primitives.gathers import DynamicSlice, DynamicUpdateSlice, Gather, Scatter
from toile.primitives.random import (
    RandomBits,
    RandomClone,
    RandomConsume,
    RandomFoldIn,
    RandomSeed,
    RandomSplit,
    RandomUnwrap,
    RandomWrap,
)
from toile.primitives.shapes import Concatenate, OptimizationBarrier, Slice

Mask = Any  # which keys of an array: True for all of them, or an array of booleans
Places = Any  # the operand's element that each element of a result is; None: unknown


class Signature(NamedTuple):
    """What an operation does to keys, by the numbers of its operands and results."""

    sinks: dict[int, Mask] = {}  # operands that are used up
    sources: frozenset[int] = frozenset()  # results that are new keys
    forwards: dict[int, tuple[int, Places]] = {}  # results that are an operand's


_NOTHING, _NEW = Signature(), Signature(sources=frozenset({0}))


def _is_key(aval: Aval) -> bool:
    return dtypes.is_extended(aval.dtype)


def _mask(mask: Any) -> Mask:
    """A mask as it is kept: True where it holds everywhere."""
    return True if mask is True or mask.all() else mask


def signature(op: Operation, avals: Sequence[Aval]) -> Signature:
    """What an operation does to keys among operands of `avals`; KeyReuseError where it fails."""
    for cls in type(op).__mro__:
        rule = _RULES.get(cls)
        if rule is not None:
            return rule(op, avals)
    return _unknown(op, avals)


def _unknown(op: Operation, avals: Sequence[Aval]) -> Signature:
    return Signature({i: True for i, a in enumerate(avals) if _is_key(a)})


# ---------------------------------------------------------------------------- one operation's keys


def _numbers(shape: Sequence[int]) -> Any:
    return np.arange(math.prod(shape)).reshape(shape)


def _same(op: Operation, avals: Sequence[Aval]) -> Signature:
    keys = [(i, a) for i, a in enumerate(avals) if _is_key(a)]
    return Signature(forwards={i: (i, _numbers(a.shape)) for i, a in keys})


def _moved(op: Any, avals: Sequence[Aval]) -> Signature:
    """An operation that moves elements about: so it moves their numbers."""
    if not _is_key(avals[0]):
        return _NOTHING
    return Signature(forwards={0: (0, np.asarray(op.eager(np, _numbers(avals[0].shape))))})


def _from_unknown_places(op: Operation, avals: Sequence[Aval]) -> Signature:
    return Signature(forwards={0: (0, None)})


def _updated(index: int) -> Callable[..., Signature]:
    """The first operand with some elements replaced by those of the operand at `index`."""

    def rule(op: Operation, avals: Sequence[Aval]) -> Signature:
        if not _is_key(avals[0]):
            return _NOTHING
        return Signature({index: True}, forwards={0: (0, _numbers(avals[0].shape))})

    return rule


def _slice(op: Any, avals: Sequence[Aval]) -> Signature:
    if not _is_key(avals[0]):
        return _NOTHING
    taken = np.zeros(avals[0].shape, bool)
    taken[tuple(map(slice, op.starts, op.limits, op.strides))] = True
    return Signature({0: _mask(taken)} if taken.any() else {}, frozenset({0}))


def _concatenate(op: Operation, avals: Sequence[Aval]) -> Signature:
    if len(avals) == 1:
        return _same(op, avals)
    return Signature(_unknown(op, avals).sinks, frozenset({0}))


# ------------------------------------------------------------------------- operations with Programs


def _call(op: Any, avals: Sequence[Aval]) -> Signature:
    if isinstance(op, Call) and op.label == "rematted":  # what the forward pass has done before
        return _NOTHING
    program = getattr(op, "program", None)
    if not isinstance(program, Program) or len(program.inputs) != len(avals):
        return _unknown(op, avals)
    found = program_signature(program)
    if not op.divided:
        return found
    # Each device has some of the elements, and which is not known here.
    forwards = {j: (i, None) for j, (i, _) in found.forwards.items()}
    return Signature({i: m for i, m in found.sinks.items() if m is True}, found.sources, forwards)


def _cond(op: Cond, avals: Sequence[Aval]) -> Signature:
    each = [program_signature(b) for b in op.branches]
    sinks: dict[int, Mask] = {}
    for found in each:
        for i, m in found.sinks.items():
            sinks[i + 1] = _joined(sinks.get(i + 1), m)
    forwards: dict[int, tuple[int, Places]] = {}
    for j, (i, places) in each[0].forwards.items():
        others = [s.forwards.get(j, (-1, None)) for s in each[1:]]
        if all(other == i for other, _ in others):
            same = places is not None and all(np.array_equal(places, p) for _, p in others)
            forwards[j] = (i + 1, places if same else None)
    sources = frozenset[int]().union(*(s.sources for s in each)) - forwards.keys()
    return Signature(sinks, sources, forwards)


def _joined(a: Mask, b: Mask) -> Mask:
    if a is None or a is True or b is True:
        return b if a is None else True
    return _mask(a | b)


def _scan(op: Scan, avals: Sequence[Aval]) -> Signature:
    found = program_signature(op.program)
    first_x = op.consts + op.carry
    if any(i < op.consts for i in found.sinks):
        raise _in_loop("scan body", "uses up a key that it closes over")
    if any(op.consts <= i < first_x and i - op.consts not in found.sources for i in found.sinks):
        raise _in_loop("scan body", "uses up a key of the carry and hands no new one on")
    sinks = {i: m if i < first_x or m is True else np.broadcast_to(m, avals[i].shape)
             for i, m in found.sinks.items()}
    forwards = {}
    for j, (i, places) in found.forwards.items():
        returned = op.consts <= i < first_x and j == i - op.consts  # the carry comes back
        forwards[j] = (i, places if returned else None)
    return Signature(sinks, found.sources, forwards)


def _while(op: While, avals: Sequence[Aval]) -> Signature:
    cond, body = program_signature(op.cond), program_signature(op.body)
    in_cond = {i - op.cond_consts: m for i, m in cond.sinks.items()}
    in_body = {i - op.body_consts: m for i, m in body.sinks.items()}
    for name, used in ("cond", in_cond), ("body", in_body):
        if any(i < 0 for i in used):
            raise _in_loop(f"while_loop {name}", "uses up a key that it closes over")
        if used.keys() - body.sources:
            raise _in_loop(f"while_loop {name}", "uses up a key that the body does not renew")
    if in_cond.keys() & in_body.keys():
        raise _in_loop("while_loop cond", "uses up a key of the carry, as the body does")
    first = op.cond_consts + op.body_consts
    sinks = {i + first: m for i, m in (in_cond | in_body).items()}
    forwards = {j: (i + op.cond_consts, p) for j, (i, p) in body.forwards.items()}
    return Signature(sinks, body.sources, forwards)


def _in_loop(what: str, why: str) -> KeyReuseError:
    return KeyReuseError(
        f"{what} function leads to key reuse when repeatedly executed: it {why} (carry the key and "
        f"split it in each step, or fold the step number into it){here()}"
    )


def _new_keys(op: Operation, avals: Sequence[Aval]) -> Signature:
    return _NEW


def _reads_only(op: Operation, avals: Sequence[Aval]) -> Signature:
    return _NOTHING


_RULES: dict[type, Callable[[Any, Sequence[Aval]], Signature]] = {
    **dict.fromkeys((RandomSeed, RandomWrap, RandomFoldIn, RandomClone), _new_keys),
    **dict.fromkeys((RandomUnwrap, DebugCallback, Eq, Ne, type(key_eq)), _reads_only),
    # What these do again was done by the forward pass.
    **dict.fromkeys((RematLinear, LinearWhile), _reads_only),
    RandomBits: _unknown,
    RandomSplit: lambda op, avals: Signature({0: True}, frozenset({0})),
    RandomConsume: lambda op, avals: Signature({0: True}, forwards=_same(op, avals).forwards),
    # A value that a derived Program holds: its uses are not counted.
    Captured: _new_keys,
    **dict.fromkeys((Identity, StopGradient, ConvertElementType, OptimizationBarrier), _same),
    **dict.fromkeys((BroadcastInDim, Reshape, Transpose), _moved),
    **dict.fromkeys((DynamicSlice, Gather), _from_unknown_places),
    DynamicUpdateSlice: _updated(1),
    Scatter: _updated(2),
    Slice: _slice,
    Concatenate: _concatenate,
    **dict.fromkeys((CustomCall, LinearSolve), _unknown),
    Carrier: _call,
    Cond: _cond,
    Scan: _scan,
    While: _while,
}


# ---------------------------------------------------------------------------------- Programs' keys


class _Origin:
    """Keys that came from one place: which are used, and where the first use was."""

    __slots__ = ("var", "used", "unknown", "parts", "source")

    def __init__(self, var: Var):
        self.var = var
        self.used = np.zeros(math.prod(var.aval.shape), bool)
        self.unknown = False  # whether some were used, and it is not known which
        self.parts: dict[Var, Any] = {}  # uses of views whose places are not known
        self.source: Any = None


class _View(NamedTuple):
    """The keys of a variable: which of its origin's they are."""

    origin: _Origin
    places: Places

    def use(self, var: Var, mask: Mask) -> bool:
        """Use some of the keys up; whether one of them was."""
        origin, used = self.origin, self.origin.used
        if self.places is not None:
            where = self.places.ravel() if mask is True else self.places[mask]
            again = bool(used[where].any()) or (origin.unknown and mask is True)
            used[where] = True
        elif mask is True:
            again = bool(used.any()) or origin.unknown
            used[:] = True
        else:
            before = origin.parts.get(var, False)
            again = bool(used.size and used.all()) or bool(np.any(before & mask))
            origin.parts[var], origin.unknown = before | mask, True
        return again


class _Uses(NamedTuple):
    """The signature of a Program, by its variables."""

    sinks: dict[Var, Mask]
    sources: frozenset[int]
    forwards: dict[int, tuple[Var, Places]]


def _new(var: Var, used: bool = False) -> _View:
    made = _Origin(var)
    made.used[:] = used
    return _View(made, _numbers(var.aval.shape))


def program_signature(program: Program) -> Signature:
    """What a Program does to keys; KeyReuseError if it uses one up twice."""
    uses = _uses(program)
    index = {v: i for i, v in enumerate(program.inputs)}
    sinks = {index[v]: m for v, m in uses.sinks.items() if v in index}
    forwards = {j: (index[v], p) for j, (v, p) in uses.forwards.items() if v in index}
    return Signature(sinks, uses.sources, forwards)


def keys_used(program: Program) -> Iterable[Var]:
    """The inputs that a Program uses up."""
    return _uses(program).sinks


def inherit_uses(program: Program, old: Program) -> None:
    """Keep what is known of a Program with the same equations, which may have had dead code."""
    if _KNOWN in old.memo:
        program.memo[_KNOWN] = old.memo[_KNOWN]


_KNOWN = "key reuse"


def _uses(program: Program) -> _Uses:
    return program.memoized(_KNOWN, lambda: _counted(program))


def _counted(program: Program) -> _Uses:
    views: dict[Any, _View] = {v: _new(v) for v in program.inputs if _is_key(v.aval)}
    inputs = {id(view.origin) for view in views.values()}
    for e in program.equations:
        if any(_is_key(a.aval) for a in (*e.ins, *e.outs)) or isinstance(e.op, Carrier):
            _count(e, views)
    origins = [view.origin for v, view in views.items() if id(view.origin) in inputs]
    sinks = {o.var: _used_up(o) for o in origins if o.used.any() or o.unknown}
    sources, forwards = set(), {}
    for j, out in enumerate(program.outputs):
        view = views.get(out)
        if view is None:
            continue
        if id(view.origin) in inputs:
            forwards[j] = view.origin.var, view.places
        elif not view.origin.used.any():
            sources.add(j)
    return _Uses(sinks, frozenset(sources), forwards)


def _used_up(origin: _Origin) -> Mask:
    """The used keys of an input; all of them where it is not known which."""
    return True if origin.unknown else _mask(origin.used.reshape(origin.var.aval.shape))


def _count(e: Equation, views: dict[Any, _View]) -> None:
    """Note what an equation does to the keys."""
    found = signature(e.op, [a.aval for a in e.ins])
    sinks = [(i, e.ins[i], m) for i, m in found.sinks.items()]
    for i, var, mask in _by_variable(sinks) if isinstance(e.op, Cond) else sinks:
        view = views.get(var)
        if not isinstance(var, Var) or view is None:
            continue
        if view.use(var, mask):
            raise KeyReuseError(_reuse_message(
                f"In {e.op.name}, argument {i} is already consumed", view.origin.source, e.source
            ))
        view.origin.source = view.origin.source or e.source
    for j, out in enumerate(e.outs):
        if not _is_key(out.aval):
            continue
        i, places = found.forwards.get(j, (-1, None))
        given = None if i < 0 else views.get(e.ins[i])
        if given is not None:
            known = given.places is not None and places is not None
            views[out] = _View(given.origin, given.places.ravel()[places] if known else None)
        else:
            views[out] = _new(out, used=j not in found.sources)


def _by_variable(sinks: Sequence[tuple[int, Any, Mask]]) -> Iterable[tuple[int, Any, Mask]]:
    """Uses by branches, of which one runs: a key that several close over is used once."""
    found: dict[Any, tuple[int, Any, Mask]] = {}
    for i, var, mask in sinks:
        found[var] = i, var, _joined(found.get(var, (i, var, None))[2], mask)
    return found.values()


def _reuse_message(text: str, first: Any, second: Any = None) -> str:
    """The text of an error with where the two uses are."""
    text += ": needed a key that was not used before (split it, or random.clone it on purpose)"
    if first is not None:
        text += f"\n  it was first used at {first}"
    if second is not None:
        text += f"\n  it is used again at {second}"
    return text + here()


# ----------------------------------------------------------------------------------- concrete keys


def run(op: Operation, args: Sequence[Any]) -> Any:
    """Run an operation now, and note which keys it uses up."""
    if not isinstance(op, Carrier) and not any(isinstance(a, KeyArray) for a in args):
        return run_eager(op, args)
    found = signature(op, [aval_of(a) for a in args])
    keys = [(i, args[i], m) for i, m in found.sinks.items()
            if isinstance(args[i], KeyArray) and args[i].size]
    for i, key, mask in keys:
        _check_unused(op, i, key, mask)
    result = run_eager(op, args)
    for _, key, mask in keys:
        used, source = getattr(key, "_spent", (False, None))
        key._spent = used | mask, source or user_source()
    for j, out in enumerate(result if op.multiple else [result]):
        if isinstance(out, KeyArray) and j not in found.sources:
            _follow(out, found.forwards.get(j), args)
    return result


def _check_unused(op: Operation, i: int, key: KeyArray, mask: Mask) -> None:
    """Raise if some of the keys that an operation uses up were used before."""
    used, source = getattr(key, "_spent", (False, None))
    if np.any(used & mask):
        what = "jit-compiled function" if isinstance(op, Call) else op.name
        text = f"Previously-consumed key passed to {what} at index {i}"
        raise KeyReuseError(_reuse_message(text, source))


def _follow(out: KeyArray, forward: tuple[int, Places] | None, args: Sequence[Any]) -> None:
    """Mark a result that is not a new key: as used, or as its operand is."""
    if forward is None:
        out._spent = True, user_source()
        return
    i, places = forward
    used, source = getattr(args[i], "_spent", (False, None))
    if used is False or out is args[i]:
        return
    if used is not True:
        used = False if places is None else used.ravel()[places]
    out._spent = used, source
