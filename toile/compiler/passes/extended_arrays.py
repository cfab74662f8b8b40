"""Arrays that are continued beyond their ends are read in place.

    concatenate(x[:1], x, x[-1:])         = x[clamp(i - 1)]
    concatenate(reverse(x[1:3]), x, ...)  = x[mirror(i - 2)]
    concatenate(x[-2:], x, x[:2])         = x[wrap(i - 2)]

This is what `jnp.pad` makes of its modes "edge", "symmetric", "reflect" and "wrap", one axis after
the other. Loop nests compute the places along all axes: one kernel copies each element once. If
only nests read the continued array, and only through slices, as a stencil does, it is not stored.
This is for devices whose nests can read elements at computed places along the innermost axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.compiler.passes.rewriter import Replacement, Rewriter, readers_of, rewrite
from toile.engine.avals import Aval
from toile.engine.operation import Operation
from toile.engine.program import Atom, Equation, Program, Var, without_dead_code
from toile.primitives.addresses import is_picked
from toile.primitives.families import BroadcastInDim, Reshape
from toile.primitives.shapes import Rev

MOST_TAPS = 16  # slices of a continued array that read the array itself
MODES = ("edge", "reflect", "symmetric", "wrap")


@dataclass(frozen=True)
class Extend(Operation):
    """A part of an array that is continued beyond its ends.

    The part begins at `starts` (negative: before the first element) and has the shape `sizes`. The
    modes are those of `jnp.pad`; "" is that of an axis that is not continued. An axis is continued
    by at most as many elements as it has."""

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
    """Which elements of an axis a part of the continued axis has."""
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

    def rule(new: Rewriter, e: Equation) -> Replacement:
        axis = e.op.joined_axis
        found = None if axis is None else _extended(new, e, axis)
        if found is None:
            return None
        x, op = found
        trial = Equation(op, [x], e.outs, e.source, e.scope)
        return [new.add(op, [x], e, e.outs[0].aval)] if can_fuse(trial) else None

    after = rewrite(program, rule)
    return program if after is program else _sliced(without_dead_code(after), can_fuse)


def _extended(new: Rewriter, e: Equation, axis: int) -> tuple[Atom, Extend] | None:
    """The array that a concatenation continues along an axis, and how."""
    if not 2 <= len(e.ins) <= 3 or len({id(a) for a in e.ins}) < len(e.ins):
        return None
    for n, x in enumerate(e.ins):
        if x.__class__ is not Var or n == len(e.ins) - 3:
            continue
        sides = [(a, i < n) for i, a in enumerate(e.ins) if i != n]
        if len(e.ins) == 3 and n != 1:
            continue
        modes = set(MODES)
        for a, before in sides:
            modes &= _modes(new, a, x, axis, before)
        if modes:
            low = e.ins[0].aval.shape[axis] if n else 0
            return _joined(new, x, axis, low, e.outs[0].aval.shape, min(modes))
    return None


def _joined(new: Rewriter, x: Atom, axis: int, low: int, shape: tuple[int, ...],
            mode: str) -> tuple[Atom, Extend] | None:
    """The continuation of an array, which may be continued along other axes already."""
    made, rank = new.producer(x), len(shape)
    starts, modes = [0] * rank, [""] * rank
    if made is not None and isinstance(made.op, Extend) and not made.op.modes[axis]:
        starts, modes, x = list(made.op.starts), list(made.op.modes), made.ins[0]
    starts[axis], modes[axis] = -low, mode
    return x, Extend(tuple(starts), shape, tuple(modes))


def _modes(new: Rewriter, a: Atom, x: Atom, axis: int, before: bool) -> set[str]:
    """The modes in which `a` continues `x` at the start, or at the end, of an axis."""
    made, width, extent = new.producer(a), a.aval.shape[axis], x.aval.shape[axis]
    if made is None or not 0 < width <= extent:
        return set()
    reversed_ = isinstance(made.op, Rev) and made.op.axes == (axis,)
    repeated = not reversed_ and not made.op.views_part
    if repeated:
        made = _repeated(new, made, axis)
    elif reversed_:
        made = new.producer(made.ins[0])
    op: Any = None if made is None else made.op
    if made is None or not op.views_part or made.ins[0] is not x or any(
            (s, n, step) != (0, m, 1) for d, (s, n, step, m) in enumerate(
                zip(op.starts, op.limits, op.strides, x.aval.shape, strict=True)) if d != axis):
        return set()
    if op.strides[axis] != 1:
        return set()
    part = range(op.starts[axis], op.limits[axis])
    elements = np.full(width, part[0]) if repeated else np.array(part[::-1] if reversed_ else part)
    if len(elements) != width:
        return set()
    start = -width if before else extent
    return {mode for mode in MODES
            if extent > 1 and (places(mode, start, width, extent) == elements).all()
            and (mode != "reflect" or width < extent)}


def _repeated(new: Rewriter, made: Equation, axis: int) -> Equation | None:
    """The slice of one element that an equation repeats along an axis; None if there is none."""
    shape = made.outs[0].aval.shape
    spread = new.producer(made.ins[0]) if made.op.is_view and made.ins else None
    if spread is None or not isinstance(spread.op, BroadcastInDim):
        spread = made
    if not isinstance(spread.op, BroadcastInDim):
        return None
    one = (*shape[:axis], 1, *shape[axis + 1:])
    kept = [d for d in range(len(shape) + 1) if d != axis + 1]
    apart = (*shape[:axis], 1, shape[axis], *shape[axis + 1:]), tuple(kept)
    together = shape, tuple(range(len(shape)))
    way = apart if spread is not made else together
    if (spread.op.shape, spread.op.dims) != way or spread.ins[0].aval.shape != one:
        return None
    if spread is not made and not isinstance(made.op, Reshape):
        return None
    return new.producer(spread.ins[0])


# ---- slices


def _sliced(program: Program, can_fuse: Callable[[Equation], bool]) -> Program:
    """Read slices of continued arrays where these are, if nothing else reads the arrays."""
    readers, outputs = readers_of(program), set(program.outputs)
    wanted = {e.outs[0] for e in program.equations if isinstance(e.op, Extend)
              and e.outs[0] not in outputs and _only_slices(e, readers, outputs, can_fuse)}

    def rule(new: Rewriter, e: Equation) -> Replacement:
        if not e.op.views_part or e.ins[0] not in wanted:
            return None
        made = new.producer(e.ins[0])
        assert made is not None
        return [new.add(_part(made.op, e.op), made.ins, e, e.outs[0].aval)]

    return without_dead_code(rewrite(program, rule)) if wanted else program


def _part(op: Any, part: Any) -> Extend:
    """What a slice takes of a continued array."""
    starts = tuple(a + b for a, b in zip(op.starts, part.starts, strict=True))
    sizes = tuple(b - a for a, b in zip(part.starts, part.limits, strict=True))
    modes = tuple(mode or ("edge" if (start, size) != (0, whole) else "") for mode, start, size, whole
                  in zip(op.modes, starts, sizes, op.sizes, strict=True))
    return Extend(starts, sizes, modes)


def _only_slices(e: Equation, readers: dict[Atom, list[Equation]], outputs: set[Atom],
                 can_fuse: Callable[[Equation], bool]) -> bool:
    """Whether only loop nests read an array, and only through a few slices of its elements."""
    found = readers.get(e.outs[0], [])
    return 0 < len(found) <= MOST_TAPS and all(
        r.op.views_part and not any(s != 1 for s in getattr(r.op, "strides", (0,)))
        and r.outs[0] not in outputs and _fuses_all(readers.get(r.outs[0], ()), can_fuse)
        for r in found)


def _fuses_all(readers: Sequence[Equation], can_fuse: Callable[[Equation], bool]) -> bool:
    """Whether loop nests compute all readers, element by element."""
    return bool(readers) and all(
        can_fuse(r) and not r.op.picks and not r.op.is_reduction for r in readers)
