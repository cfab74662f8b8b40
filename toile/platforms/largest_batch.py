"""The largest batch that fits: how a Program's planned peak grows with the batch axis.

The shapes of a Program are fixed, but the batch axis can be followed from the inputs through the
equations. Buffers that have this axis grow with the batch, the others do not. The expected peak for
another batch is the largest sum of the buffers that are in use at one step. Of the leading axes of
inputs, the batch is the one that most bytes of temporaries depend on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.compiler.ir.operands import Scratch
from toile.compiler.ir.steps import whole_buffer
from toile.compiler.plan.place import arena_layout
from toile.engine.program import Equation, Program, Var
from toile.targets.cuda.cublas import WORKSPACE

MOST_CANDIDATES = 16
Axes = dict[Any, int]  # the axis of each variable that grows with the batch


# ---- following the batch axis through the equations


def grown(program: Program, n: int, seeds: Iterable[Var]) -> Axes:
    """The batch axis of each variable that has one; in `seeds` it is the first, of extent n."""
    axes: Axes = dict.fromkeys(seeds, 0)
    for e in program.equations:
        for o in e.outs:
            found = _axis(e, o, n, axes)
            if found is not None and o.aval.shape[found] % n == 0:
                axes[o] = found
    return axes


def _axis(e: Equation, o: Var, n: int, axes: Axes) -> int | None:
    shape = o.aval.shape
    given = [(i, a.aval.shape, axes[a]) for i, a in enumerate(e.ins) if a in axes]
    if not given:  # zeros or other numbers, one row for each example
        return 0 if e.op.makes_axes and shape and shape[0] == n else None
    for i, operand, axis in given:
        found = e.op.grown_axis(i, operand, axis, shape, n)
        if found is not None:
            return found
    return None


# ---- bytes at each step


@dataclass
class Growth:
    """Bytes in use at each step of a plan: those that grow with the batch, and the rest.

    `leading` are those of buffers whose first axis is the batch, the usual case."""

    fixed: np.ndarray
    growing: np.ndarray
    leading: float = 0.0

    def peak(self, factor: float) -> float:
        return float((self.fixed + factor * self.growing).max(initial=0.0))


def growth_of(plan: Any, n: int, axes: Axes) -> Growth:
    """How the temporaries of a plan grow."""
    count = len(plan.steps)
    found = Growth(np.zeros(count + 1), np.zeros(count + 1))
    spans: dict[Any, list[int]] = {}
    grows: dict[Any, bool] = {}
    for i, step in enumerate(plan.steps):
        touched = {_variable(whole_buffer(b)) for b in step.reads | step.writes}
        scales = any(b in axes for b in touched)
        for b in plan.temporaries_of(step):
            spans.setdefault(b, [i, i])[1] = i
            grown_now = _variable(b) in axes or scales and _scratch_grows(b, n)
            grows[b] = grows.get(b, False) or grown_now
        for child in getattr(step, "children", ()):
            inner = arena_layout(child)[1]
            part = inner * _part_that_grows(child, n)
            found.growing[i] += part
            found.fixed[i] += inner - part
    for b, (first, last) in spans.items():
        (found.growing if grows[b] else found.fixed)[first : last + 1] += b.nbytes
        if axes.get(_variable(b)) == 0:
            found.leading += b.nbytes
    return found


def _variable(buffer: Any) -> Any:
    """The variable that a buffer holds; the buffer itself if there is none."""
    return getattr(buffer, "var", buffer)


def _scratch_grows(b: Any, n: int) -> bool:
    """Whether a kernel's scratch memory is for the whole batch."""
    return isinstance(b, Scratch) and b.nbytes != WORKSPACE and b.nbytes % n == 0


def _part_that_grows(plan: Any, n: int) -> float:
    """The growing fraction of a loop body's temporaries, where any axis may be the batch."""
    axes: Axes = {v: v.aval.shape.index(n) for v in plan.program.inputs if n in v.aval.shape}
    program = plan.program
    for e in program.equations:
        for o in e.outs:
            found = _axis(e, o, n, axes)
            if found is not None:
                axes[o] = found
    growth = growth_of(plan, n, axes)
    total = growth.peak(1.0)
    return 1.0 - growth.peak(0.0) / total if total else 0.0


# ---- the batch
FRAGMENTS = 1 / 32  # of the memory: what is lost to free parts of blocks in use


@dataclass
class Fit:
    """How large the batch may be."""

    batch: int  # the present size
    fits: int  # the largest size; 0: no batch fits
    of: str  # the input whose first axis is the batch
    each: float  # bytes of one example
    rest: float  # bytes of everything else
    room: int

    def lines(self, size: Callable[[float], str]) -> list[str]:
        """A description, with how the size was found."""
        if self.fits:
            head = f"a batch of {self.fits} would fit (now {self.batch}, the first axis of "
        else:
            head = f"not even a batch of 1 would fit (now {self.batch}, the first axis of "
        return [
            f"{head}{self.of})",
            f"  estimate: {size(self.rest)} of the planned peak does not depend on the batch, each "
            f"example adds {size(self.each)}, and {size(self.room)} are available",
        ]


def batch_that_fits(executable: Any, room: int) -> Fit | None:
    """The largest batch whose planned peak is at most `room` bytes; None: no batch axis found."""
    found = _chosen(executable)
    if found is None:
        return None
    n, seeds, axes, growth = found
    room -= int(room * FRAGMENTS)
    program = executable.program
    temporaries = growth.peak(1.0)
    packing = executable.arena_bytes / temporaries if temporaries else 1.0
    outside = [*program.inputs, *executable.plan.program.outputs]
    given = sum(v.aval.nbytes for v in outside if v in axes)
    rest = sum(v.aval.nbytes for v in outside if v not in axes)
    rest += executable.constant_bytes

    def peak(batch: float) -> float:
        return rest + batch / n * given + packing * growth.peak(batch / n)

    low, high = 0, max(n, 1)
    if peak(high) <= room:  # memory ran out for another reason: fragmentation, other work
        high = max(n - 1, 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if peak(middle) <= room else (low, middle - 1)
    each = (peak(n) - peak(0)) / n
    return Fit(n, low, seeds[0].aval.str_short(), each, peak(0), room)


def _chosen(executable: Any) -> tuple[int, list[Var], Axes, Growth] | None:
    """The leading axis of inputs that most of the temporaries depend on."""
    return next(iter(leading_axes(executable)), None)


def leading_axes(executable: Any) -> list[tuple[int, list[Var], Axes, Growth]]:
    """The leading axes of inputs that may be the batch, the most probable one first."""
    plan = executable.plan
    inputs = _data(executable.program)
    extents = list(dict.fromkeys(v.aval.shape[0] for v in inputs))[:MOST_CANDIDATES]
    found: list[tuple[float, Any]] = []
    for n in extents:
        seeds = [v for v in inputs if v.aval.shape[0] == n]
        axes = grown(plan.program, n, seeds)
        growth = growth_of(plan, n, axes)
        bound = sum(o.aval.nbytes for o in plan.program.outputs if axes.get(o) == 0)
        score = growth.peak(1.0) - growth.peak(0.0) + growth.leading + bound
        score += sum(v.aval.nbytes for v in seeds) / 1024  # break ties by the larger data
        if score > 0:
            found.append((score, (n, seeds, axes, growth)))
    return [x for _, x in sorted(found, key=lambda x: -x[0])]


def _data(program: Program) -> list[Var]:
    """The inputs that may have a batch axis: all but the state that a training step updates."""
    inputs = [v for v in program.inputs if v.aval.shape and v.aval.shape[0] > 1]
    made = Counter((o.aval.shape, o.aval.dtype) for o in program.outputs)
    state = [v for v in inputs if (v.aval.shape, v.aval.dtype) in made]
    if len(made) > 1 and len(state) >= len(program.outputs) / 2:  # a step: new state for old
        return [v for v in inputs if v not in state] or inputs
    return inputs
