"""Operands laid out as a method needs them: by views where strides allow it, else by copies.

Also the merging of few channels with the taps of the last axis: a row of x, padded, holds the
channels of neighbouring taps side by side, so that one long run replaces many short ones and
nothing outside of the taps is ever multiplied. May import the problem and copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from toile.backends.cpu import copies
from toile.backends.cpu.convolution.problem import Problem
from toile.backends.cpu.launches import Planner
from toile.compiler.geometry import dense, part
from toile.compiler.operands import Operand

FEW = 8  # channels that are merged with taps
SLACK = 128  # bytes: no tile has wider rows


def _dtype(p: Problem) -> Any:
    return np.dtype(np.float32 if p.type == "float" else np.float64)


def _dims(p: Problem, which: str) -> dict[str, tuple[int, int]]:
    """Extent and stride of each dimension of an operand, by letter."""
    if which == "x":
        found = {"n": (p.images, p.x_image), "g": (p.groups, p.x_group),
                 "c": (p.channels, p.x_channel)}  # fmt: skip
        return found | {str(d): (a.size, a.x) for d, a in enumerate(p.axes)}
    if which == "w":
        found = {"o": (p.features, p.w_feature), "g": (p.groups, p.w_group),
                 "c": (p.channels, p.w_channel)}  # fmt: skip
        return found | {str(d): (a.taps, a.w) for d, a in enumerate(p.axes)}
    found = {"n": (p.images, p.y_image), "g": (p.groups, p.y_group),
             "o": (p.features, p.y_feature)}  # fmt: skip
    return found | {str(d): (a.outs, a.y) for d, a in enumerate(p.axes)}


_NAMES = {"n": "image", "g": "group", "c": "channel", "o": "feature"}


def view(p: Problem, which: str, order: str) -> Operand:
    """An operand with its dimensions in an order, outermost first."""
    dims = _dims(p, which)
    shape, strides = zip(*(dims[letter] for letter in order), strict=True)
    return Operand(getattr(p, which), shape, strides, _dtype(p))


def placed(p: Problem, which: str, order: str, at: Operand) -> Problem:
    """The problem with an operand elsewhere, its dimensions in this order there."""
    axes = list(p.axes)
    changes: dict[str, Any] = {which: at.ref}
    for letter, stride in zip(order, at.strides, strict=True):
        if letter.isdigit():
            axes[int(letter)] = replace(axes[int(letter)], **{which: stride})
        else:
            changes[f"{which}_{_NAMES[letter]}"] = stride
    return replace(p, axes=tuple(axes), **changes)


def relaid(p: Problem, which: str, order: str, plan: Planner) -> Problem:
    """The problem with an operand that lies densely in this order."""
    x = view(p, which, order)
    return p if x.contiguous else placed(p, which, order, plan.contiguous(x))


def with_result_in(
    p: Problem, order: str, plan: Planner, lower: Callable[[Problem, Planner], None]
) -> None:
    """Lower with the result in this order, then copy it to where it belongs."""
    result = view(p, "y", order)
    if result.contiguous:
        lower(p, plan)
        return
    room = dense(plan.scratch(result.size * p.itemsize), result.shape, result.dtype)
    lower(placed(p, "y", order, room), plan)
    copies.copy(result, room, plan)


def _padded(p: Problem, order: str, width: int, plan: Planner) -> Problem:
    """x with `low` zeros before the last spatial axis, `width` places of it; dense in `order`.

    Behind it is room for a tile's row."""
    axis = p.axes[2]
    source = view(p, "x", order)
    at = order.index("2")
    shape = (*source.shape[:at], width, *source.shape[at + 1 :])
    nbytes = prod(shape) * p.itemsize + SLACK
    room = dense(plan.scratch(nbytes), shape, source.dtype)
    first, last = max(0, axis.low), min(width, axis.low + axis.size)
    copies.fill(room, 0, plan)
    if first < last:
        starts = [0] * len(shape)
        starts[at] = first
        block = (*shape[:at], last - first, *shape[at + 1 :])
        into = part(room, starts, block)
        starts[at] = first - axis.low
        copies.copy(into, part(source, starts, block), plan)
    return replace(placed(p, "x", order, room), slack=True)


def merged_channels(p: Problem, plan: Planner) -> Problem:
    """Few channels and the taps of the last axis as more channels."""
    axis = p.axes[2]
    if p.channels > FEW or p.groups > 1 or axis.taps < 2 or (axis.base, axis.dilation) != (1, 1):
        return p
    width = (axis.outs - 1) * axis.stride + axis.taps
    p = relaid(p, "w", "g012co", plan)
    p = _padded(p, "n012gc", width, plan)
    step = p.axes[2].w if p.channels == 1 else p.w_channel
    axes = (*p.axes[:2], replace(p.axes[2], size=width, taps=1, low=0, w=0))
    return replace(p, axes=axes, channels=p.channels * axis.taps, x_channel=1, w_channel=step)


def merged_images(p: Problem, plan: Planner) -> Problem:
    """The same where channels are called images and taps positions: the gradient of kernels."""
    axis = p.axes[2]
    dense = p.images == 1 or axis.y == p.images * p.y_image
    if p.images > FEW or p.groups > 1 or axis.outs < 2 or (axis.base, axis.stride) != (1, 1):
        return p
    if not dense:
        return p
    width = (axis.taps - 1) * axis.dilation + axis.outs
    p = _padded(p, "c012gn", width, plan)
    step = axis.y if p.images == 1 else p.y_image
    axes = (*p.axes[:2], replace(p.axes[2], size=width, outs=1, low=0, y=0))
    return replace(p, axes=axes, images=p.images * axis.outs, x_image=1, y_image=step)
