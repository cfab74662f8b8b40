"""Operands in the order that a method needs: as views if strides allow it, else as copies.

If channels are few, they are merged with the taps of the last axis: a padded row of x holds the
channels of adjacent taps next to each other, so that one long run replaces many short ones and
nothing outside the taps is ever multiplied.

16-bit floats are converted, element by element, because convolutions sum in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any

import numpy as np

from toile.compiler.ir.geometry import dense, part, room
from toile.compiler.ir.operands import Operand
from toile.kernels.convolution.cpu.problem import Problem
from toile.kernels.copy import cpu as copies
from toile.targets.llvm import elements, spans
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner

FEW = 8  # channels that are merged with taps
_CHUNK = 1 << 14  # elements that one chunk converts
SLACK = 128  # bytes: no tile has wider rows


def _dtype(type: str) -> Any:
    return np.dtype(np.float32 if type == "float" else np.float64)


# The dimensions of each operand by letter, and the name of its extent in an axis.
_DIMENSIONS = {"x": ("ngc", "size"), "w": ("ogc", "taps"), "y": ("ngo", "outs")}
_NAMES = {"n": "image", "g": "group", "c": "channel", "o": "feature"}


def _dims(p: Problem, which: str) -> dict[str, tuple[int, int]]:
    """Extent and stride of each dimension of an operand, by letter."""
    letters, extent = _DIMENSIONS[which]
    found = {letter: (getattr(p, f"{name}s"), getattr(p, f"{which}_{name}"))
             for letter, name in _NAMES.items() if letter in letters}
    return found | {str(d): (getattr(a, extent), getattr(a, which)) for d, a in enumerate(p.axes)}


def view(p: Problem, which: str, order: str) -> Operand:
    """An operand with its dimensions in the given order, outermost first."""
    dims = _dims(p, which)
    shape, strides = zip(*(dims[letter] for letter in order), strict=True)
    return Operand(getattr(p, which), shape, strides, _dtype(p.type))


def placed(p: Problem, which: str, order: str, at: Operand) -> Problem:
    """The problem with an operand stored at `at`, its dimensions in the given order."""
    axes = list(p.axes)
    changes: dict[str, Any] = {which: at.ref}
    for letter, stride in zip(order, at.strides, strict=True):
        if letter.isdigit():
            axes[int(letter)] = replace(axes[int(letter)], **{which: stride})
        else:
            changes[f"{which}_{_NAMES[letter]}"] = stride
    return replace(p, axes=tuple(axes), **changes)


def with_operand_in(p: Problem, which: str, order: str, plan: Planner) -> Problem:
    """The problem with an operand made dense in the given order, by a copy if need be."""
    x = view(p, which, order)
    return p if x.contiguous else placed(p, which, order, plan.contiguous(x))


def with_result_in(
    p: Problem, order: str, plan: Planner, lower: Callable[[Problem, Planner], None],
    fits: bool = False,
) -> None:  # fmt: skip
    """Lower with the result in this order, then copy it to its place, unless it already `fits`."""
    result = view(p, "y", order)
    if fits or result.contiguous:
        lower(p, plan)
        return
    target = room(plan, result.shape, result.dtype)
    lower(placed(p, "y", order, target), plan)
    copies.copy(result, target, plan)


def padded(p: Problem, order: str, widths: dict[int, int], plan: Planner) -> Problem:
    """x with `low` zeros before some spatial axes, which get new `widths`; dense in `order`.

    The array is followed by space for a tile's row."""
    source = view(p, "x", order)
    spans = [(0, n, 0, n) for n in source.shape]  # start in the new array, length, start in x, size
    axes = list(p.axes)
    for d, width in widths.items():
        axis = axes[d]
        first, last = max(0, axis.low), min(width, axis.low + axis.size)
        spans[order.index(str(d))] = first, last - first, first - axis.low, width
        axes[d] = replace(axis, size=width, low=0)
    into, block, start, shape = zip(*spans, strict=True)
    target = dense(plan.scratch(prod(shape) * p.itemsize + SLACK), shape, source.dtype)
    copies.fill(target, 0, plan)
    if min(block) > 0:
        copies.copy(part(target, into, block), part(source, start, block), plan)
    return placed(replace(p, axes=tuple(axes), slack=True), "x", order, target)


def merged_channels(p: Problem, plan: Planner) -> Problem:
    """Turn few channels and the taps of the last axis into more channels."""
    axis = p.axes[2]
    if p.channels > FEW or p.groups > 1 or axis.taps < 2 or (axis.base, axis.dilation) != (1, 1):
        return p
    width = (axis.outs - 1) * axis.stride + axis.taps
    p = with_operand_in(p, "w", "g012co", plan)
    p = padded(p, "n012gc", {2: width}, plan)
    step = p.axes[2].w if p.channels == 1 else p.w_channel
    axes = (*p.axes[:2], replace(p.axes[2], taps=1, w=0))
    return replace(p, axes=axes, channels=p.channels * axis.taps, x_channel=1, w_channel=step)


def merged_images(p: Problem, plan: Planner) -> Problem:
    """The same for the gradient of kernels: images are the channels, positions the taps."""
    axis = p.axes[2]
    if p.images > FEW or p.groups > 1 or axis.outs < 2 or (axis.base, axis.stride) != (1, 1):
        return p
    if p.images > 1 and axis.y != p.images * p.y_image:
        return p
    width = (axis.taps - 1) * axis.dilation + axis.outs
    p = padded(p, "c012gn", {2: width}, plan)
    step = axis.y if p.images == 1 else p.y_image
    axes = (*p.axes[:2], replace(p.axes[2], outs=1, y=0))
    return replace(p, axes=axes, images=p.images * axis.outs, x_image=1, y_image=step)


# -------------------------------------------------------------------------------------- precision


def supported(dtype: Any) -> bool:
    """Whether elements are floats that can be converted."""
    return elements.supported(dtype) and elements.is_float(dtype)


def converted(x: Operand, type: str, plan: Planner) -> Operand:
    """`x` in the dtype that the kernel computes in, converted if it has another."""
    dtype = _dtype(type)
    if x.dtype == dtype:
        return x
    x = plan.contiguous(x)
    out = room(plan, x.shape, dtype)
    convert(out, x, plan)
    return out


def convert(out: Operand, x: Operand, plan: Planner) -> None:
    """Convert: out = x, both dense."""
    text = convert_text(x.dtype, out.dtype)
    rows = spans.elements(x.ref, x.dtype.itemsize, out.ref, out.dtype.itemsize)
    plan.stage(Launch(text, (x.ref, out.ref), x.size, _CHUNK, "convert", rows=rows))


@cache
def convert_text(source: Any, target: Any) -> str:
    """Elements of one dtype as another."""
    body = ir.inner("body", "i64 %lo, i64 %hi, ptr noalias %x, ptr noalias %y", ir.NOINLINE)
    wide, narrow = elements.work_type(source), elements.work_type(target)
    with body.loop("%lo", "%hi", vectorize=True) as i:
        place = body.step("%x", i, source.itemsize)
        value = elements.load(body, source, place)
        if wide != narrow:
            how = "fpext" if narrow == "double" else "fptrunc"
            value = body.value(f"{how} {wide} {value} to {narrow}")
        elements.store(body, target, value, body.step("%y", i, target.itemsize))
    f = ir.kernel()
    f.call(body, "%lo", "%hi", f.buffer(0), f.buffer(2))
    return ir.module(body, f)
