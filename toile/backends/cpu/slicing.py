"""Operations that only move elements: reversals, joins, padding and slices at traced places.

Each is one stage of copies between strided views, or two where one copy goes over another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from toile.backends.cpu.copies import Dynamic, in_place, integral
from toile.backends.cpu.copies import copy as copy
from toile.backends.cpu.copies import copy_launch as copy_launch
from toile.backends.cpu.copies import dense as dense
from toile.backends.cpu.copies import fill as fill
from toile.backends.cpu.copies import part as part
from toile.backends.cpu.launches import Operand, Planner


def lower_copy(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Copy, and what the plan has turned into a view of the operand already."""
    copy(outs[0], ins[0], plan)
    return True


def lower_rev(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Rev: a copy with negative strides."""
    x = ins[0]
    starts = [n - 1 if i in op.axes else 0 for i, n in enumerate(x.shape)]
    strides = tuple(-s if i in op.axes else s for i, s in enumerate(x.strides))
    copy(outs[0], part(x, starts, x.shape)._replace(strides=strides), plan)
    return True


def lower_concatenate(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Concatenate: one stage of copies."""
    launches, start = [], 0
    for x in ins:
        at = [start if i == op.axis else 0 for i in range(len(x.shape))]
        place = part(outs[0], at, x.shape)
        if x.size and (place.ref, place.strides) != (x.ref, x.strides):  # else it is there already
            launches.append(copy_launch(place, x, note="concatenate"))
        start += x.shape[op.axis]
    plan.stage(*launches)
    return True


def lower_pad(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Pad: the block in the middle, and slabs of the value around it (or under it)."""
    (x, value), (out,) = ins, outs
    first, count, start, step = [], [], [], []
    for n, m, (low, _, interior) in zip(x.shape, out.shape, op.config, strict=True):
        s = interior + 1
        a, b = max(0, -(low // s)), min(n, -((low - m) // s))  # those that land inside
        first.append(a)
        count.append(max(0, b - a))
        start.append(low + a * s)
        step.append(s)
    spread = lambda shape: value._replace(shape=tuple(shape), strides=(0,) * len(shape))
    if not prod(count):
        copy(out, spread(out.shape), plan)
        return True
    target = part(out, start, count)
    target = target._replace(strides=tuple(a * b for a, b in zip(out.strides, step, strict=True)))
    block = copy_launch(target, part(x, first, count), note="pad")
    if any(s > 1 and n > 1 for s, n in zip(step, count, strict=True)):
        copy(out, spread(out.shape), plan)
        plan.stage(block)
        return True
    slabs = []
    at, shape = [0] * len(count), list(out.shape)
    for i, (a, n) in enumerate(zip(start, count, strict=True)):  # axes before i are inside by now
        for lo, hi in ((0, a), (a + n, out.shape[i])):
            if hi > lo:
                corner, sizes = [*at[:i], lo, *at[i + 1 :]], [*shape[:i], hi - lo, *shape[i + 1 :]]
                slabs.append(copy_launch(part(out, corner, sizes), spread(sizes), note="pad"))
        at[i], shape[i] = a, n
    plan.stage(block, *slabs)
    return True


def _dynamic(starts: Sequence[Operand], whole: Operand, sizes: Sequence[int]) -> Dynamic | None:
    """The starts that can differ from 0; None if their dtype is no plain integer."""
    if any(not integral(s.dtype) for s in starts):
        return None
    free = [i for i, n in enumerate(sizes) if n < whole.shape[i]]
    return Dynamic(
        tuple(starts[i].ref for i in free),
        tuple(whole.shape[i] - sizes[i] for i in free),
        tuple(whole.strides[i] for i in free),
        starts[0].dtype if starts else np.dtype(np.int32),
    )


def lower_dynamic_slice(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """DynamicSlice: a copy whose source starts where run-time numbers say."""
    x, *starts = ins
    dynamic = _dynamic(starts, x, op.sizes)
    if dynamic is None:
        return False
    window = x._replace(shape=tuple(op.sizes))
    plan.stage(copy_launch(outs[0], window, "source", dynamic, "dynamic_slice"))
    return True


def lower_dynamic_update_slice(
    op: Any, ins: list[Operand], outs: list[Operand], plan: Planner
) -> bool:
    """DynamicUpdateSlice: the operand (unless it lies there already), then the update over it."""
    (x, update, *starts), (out,) = ins, outs
    dynamic = _dynamic(starts, out, update.shape)
    if dynamic is None:
        return False
    if update.shape != x.shape and not in_place(x, out):
        copy(out, x, plan)
    if update.size:
        window = out._replace(shape=update.shape)
        plan.stage(copy_launch(window, update, "to", dynamic, "dynamic_update_slice"))
    return True
