"""Arrays that are extended beyond their ends are read in place.

    concatenate(x[:1], x, x[-1:])         = x[clamp(i - 1)]
    concatenate(reverse(x[1:3]), x, ...)  = x[mirror(i - 2)]
    concatenate(x[-2:], x, x[:2])         = x[wrap(i - 2)]

This is what `jnp.pad` makes of its modes "edge", "symmetric", "reflect" and "wrap", one axis after
the other. Loop nests compute the places along all axes: one kernel copies each element once. If
only nests read the extended array, and only through slices, as a stencil does, it is not stored.
This is for devices whose nests can read elements at computed places along the innermost axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.compiler.passes.joined_parts import MOST_TAPS
from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Program, without_dead_code
from toile.primitives.addresses import is_picked

MODES = ("edge", "reflect", "symmetric", "wrap")


@dataclass(frozen=True)
class Extend(Operation):
    """A part of an array that is extended beyond its ends.

    The part begins at `starts`, which are negative before the first element, and has the shape
    `sizes`. The modes are those of `jnp.pad`, or "" for an axis that is not extended. An axis is
    extended by at most as many elements as it has."""

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    modes: tuple[str, ...]
    moves_elements = True

    def infer(self, x: Aval) -> Aval:
        return x.with_shape(self.sizes)

    def eager(self, xp: Any, x: Any) -> Any:
        for axis, (start, size, mode) in enumerate(zip(self.starts, self.sizes, self.modes,
                                                       strict=True)):
            x = xp.take(x, xp.asarray(places(mode or "edge", start, size, x.shape[axis])), axis)
        return x

    def picks(self, ins: Sequence[Aval], out: Aval, innermost: bool = False,
              short: bool = False) -> bool:
        return is_picked(ins[0], out, innermost) and (innermost or not self.modes[-1])

    def picked_maps(self, out: Any) -> list[Any]:
        return [tuple(() if mode else t for mode, t in zip(self.modes, out, strict=True))]

    def nest_node(self, b: Any, member: Any) -> int:
        return b.extended(member)


def places(mode: str, start: int, size: int, extent: int) -> np.ndarray:
    """The numbers of the elements in a part of an extended axis."""
    i, last = np.arange(start, start + size), extent - 1
    if mode == "wrap":
        return i % extent
    if mode != "edge":
        twice = mode == "symmetric"  # the elements at the ends are repeated
        i = np.where(i < 0, -i - twice, i)
        i = np.where(i > last, 2 * last + twice - i, i)
    return i.clip(0, last)


def read_extended(program: Program, can_fuse: Callable[[Equation], bool]) -> Program:
    """The Program with `Extend` instead of concatenations of arrays and parts of them."""
    if all(e.op.joined_axis is None for e in program.equations):
        return program
    known: dict[Atom, tuple[Atom, Extend]] = {}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        axis = e.op.joined_axis
        found = None if axis is None else _extended(new, e, axis, known)
        if found is None:
            return None
        x, op = found
        if not can_fuse(Equation(op, [x], e.outs, e.source, e.scope)):
            return None
        out = new.add(op, [x], e, e.outs[0].aval)
        known[out] = found
        return [out]

    after = rewrite(program, rule)
    return _sliced(without_dead_code(after), known, can_fuse) if known else program


def _extended(new: Rewriter, e: Equation, axis: int,
              known: dict[Atom, tuple[Atom, Extend]]) -> tuple[Atom, Extend] | None:
    """The array that a concatenation extends along an axis, and how it does so."""
    count = len(e.ins)
    for n in (1,) if count == 3 else (0, 1) if count == 2 else ():
        x = e.ins[n]
        modes = set(MODES)
        for i, a in enumerate(e.ins):
            if i != n:
                modes &= _modes(new, a, x, axis, i < n)
        if modes:
            low = e.ins[0].aval.shape[axis] if n else 0
            return _joined(x, axis, low, e.outs[0].aval.shape, min(modes), known)
    return None


def _joined(x: Atom, axis: int, low: int, shape: tuple[int, ...], mode: str,
            known: dict[Atom, tuple[Atom, Extend]]) -> tuple[Atom, Extend]:
    """The continuation of an array, which may be continued along other axes already."""
    starts, modes = [0] * len(shape), [""] * len(shape)
    if x in known and not known[x][1].modes[axis]:
        x, op = known[x]
        starts, modes = list(op.starts), list(op.modes)
    starts[axis], modes[axis] = -low, mode
    return x, Extend(tuple(starts), shape, tuple(modes))


def _modes(new: Rewriter, a: Atom, x: Atom, axis: int, before: bool) -> set[str]:
    """The modes with which `a` extends `x` at the start or at the end of an axis."""
    width, extent = a.aval.shape[axis], x.aval.shape[axis]
    elements = _elements(new, a, x, axis) if 0 < width <= extent and extent > 1 else None
    if elements is None or len(elements) != width:
        return set()
    start = -width if before else extent
    return {mode for mode in MODES if (mode != "reflect" or width < extent)
            and (places(mode, start, width, extent) == elements).all()}


def _elements(new: Rewriter, a: Atom, x: Atom, axis: int) -> Sequence[int] | None:
    """The numbers of the elements along an axis of `x` that `a` consists of. None if `a`
    is anything else. The other axes must be whole."""
    made = new.producer(a)
    if made is None:
        return None
    if made.op.views_part:
        return _part_of(made, x, axis)
    if made.op.is_always_view and getattr(made.op, "axes", None) == (axis,):  # it is reversed
        part = _part_of(new.producer(made.ins[0]), x, axis)
        return None if part is None else part[::-1]
    part = _part_of(_repeated(new, made, axis), x, axis)
    return None if part is None else [part[0]] * a.aval.shape[axis]


def _part_of(made: Equation | None, x: Atom, axis: int) -> Sequence[int] | None:
    """The elements of an axis that a slice of `x` has, if it has all of the other axes."""
    if made is None or not made.op.views_part or made.ins[0] is not x:
        return None
    op: Any = made.op
    for d, (start, limit, step, n) in enumerate(zip(op.starts, op.limits, op.strides, x.aval.shape,
                                                    strict=True)):
        if step != 1 or d != axis and (start, limit) != (0, n):
            return None
    return range(op.starts[axis], op.limits[axis])


def _repeated(new: Rewriter, made: Equation, axis: int) -> Equation | None:
    """The slice of one element that an equation repeats along an axis; None if there is none.

    `jnp.repeat` adds an axis, which a reshape joins with the axis of one element."""
    shape = made.outs[0].aval.shape
    spread: Equation | None = made
    full, kept = shape, list(range(len(shape)))
    if made.op.is_view and not hasattr(made.op, "dims"):
        spread = new.producer(made.ins[0])
        full = (*shape[:axis], 1, *shape[axis:])
        kept = [d for d in range(len(full)) if d != axis + 1]
    op: Any = None if spread is None else spread.op
    if spread is None or (getattr(op, "shape", None), getattr(op, "dims", None)) != (
            full, tuple(kept)):
        return None
    found = new.producer(spread.ins[0])
    one = (*shape[:axis], 1, *shape[axis + 1:])
    return found if found is not None and spread.ins[0].aval.shape == one else None


# ---- slices


def _sliced(program: Program, known: dict[Atom, tuple[Atom, Extend]],
            can_fuse: Callable[[Equation], bool]) -> Program:
    """Read slices of continued arrays where these are, if nothing else reads the arrays."""
    readers, outputs = readers_of(program), set(program.outputs)
    wanted = {out for e in program.equations for out in e.outs if out in known
              and out not in outputs and _only_slices(out, readers, outputs, can_fuse)}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.views_part or e.ins[0] not in wanted:
            return None
        x, op = known[e.ins[0]]
        return [new.add(_part(op, e.op), [x], e, e.outs[0].aval)]

    return without_dead_code(rewrite(program, rule)) if wanted else program


def _part(op: Extend, part: Any) -> Extend:
    """The operation for a slice of an extended array."""
    starts = tuple(a + b for a, b in zip(op.starts, part.starts, strict=True))
    sizes = tuple(b - a for a, b in zip(part.starts, part.limits, strict=True))
    cut = [(a, n) != (0, whole) for a, n, whole in zip(starts, sizes, op.sizes, strict=True)]
    modes = tuple(mode or "edge" * c for mode, c in zip(op.modes, cut, strict=True))
    return Extend(starts, sizes, modes)


def _only_slices(x: Atom, readers: dict[Atom, list[Equation]], outputs: set[Atom],
                 can_fuse: Callable[[Equation], bool]) -> bool:
    """Whether only loop nests read an array, and only through a few slices of its elements."""
    found = readers.get(x, [])
    return 0 < len(found) <= MOST_TAPS and all(
        r.op.views_part and not any(s != 1 for s in getattr(r.op, "strides", (0,)))
        and r.outs[0] not in outputs and _fuses_all(readers.get(r.outs[0], ()), can_fuse)
        for r in found)


def _fuses_all(readers: Sequence[Equation], can_fuse: Callable[[Equation], bool]) -> bool:
    """Whether loop nests compute all readers, element by element."""
    return bool(readers) and all(
        can_fuse(r) and not r.op.picks and not r.op.is_reduction for r in readers)
