"""Convolutions and their gradients as kernels, one file per method.

`lower` writes any convolution in one form (problem), picks a method by the shape of the sums and
the strides (indirect: rows gathered through addresses; outer: few outputs of long sums;
channelwise: tiny groups; sliding: single channels), and copies operands only if no method can read
them in place.
"""

from __future__ import annotations

from toile.compiler.ir.geometry import room
from toile.compiler.ir.operands import Operand
from toile.kernels.convolution.cpu import (
    amx,
    channelwise,
    channelwise_sums,
    indirect,
    layouts,
    outer,
    pointwise,
    sliding,
)
from toile.kernels.convolution.cpu.problem import SPATIAL, Problem, problem_of
from toile.primitives.conv import ConvGeneralDilated
from toile.targets.llvm import elements
from toile.targets.llvm.launches import Planner


def lower(
    op: ConvGeneralDilated, ins: list[Operand], outs: list[Operand], plan: Planner
) -> bool:
    """Add the stages of a convolution; False if there is no method for it."""
    (x, w), (y,) = ins, outs
    if amx.lower(op, (x, w, y), plan):
        return True
    known = all(layouts.supported(a.dtype) for a in (x, w, y))
    if not known or not (x.size and w.size and y.size) or len(x.shape) - 2 > SPATIAL:
        return False
    type = elements.work_type(y.dtype)
    method = _method(problem_of(op, x, w, y, type))
    if method is None:
        return False
    x, w = (layouts.converted(a, type, plan) for a in (x, w))
    target = y if y.dtype == x.dtype else room(plan, y.shape, x.dtype)
    p = problem_of(op, x, w, target, type)
    if not (pointwise.suits(p) and pointwise.lower(p, plan)):
        _METHODS[method](p, plan)
    if target is not y:
        layouts.convert(y, target, plan)
    return True


def _method(p: Problem) -> str | None:
    """The method for a convolution; if possible, one that needs no copies."""
    if sliding.suits(p):
        return "sliding"
    if channelwise.suits(p):
        return "channelwise"
    few = p.taps > p.positions
    if few and outer.supports(p) and (p.images > 1 or not indirect.supports(p)):
        return "outer"
    if indirect.supports(p):
        return "indirect"
    if outer.supports(p) or (few and outer.fits(p)):
        return "outer"
    if indirect.fits(p):
        return "indirect"
    return "outer" if outer.fits(p) else None


def _indirect(p: Problem, plan: Planner) -> None:
    p = layouts.merged_channels(p, plan)
    if p.x_channel != 1:
        p = layouts.with_operand_in(p, "x", "n012gc", plan)
    layouts.with_result_in(p, "n012go", plan, indirect.lower, p.y_feature == 1)


def _outer(p: Problem, plan: Planner) -> None:
    p = layouts.merged_images(p, plan)
    if p.images > 1 and p.x_image != 1:
        p = layouts.with_operand_in(p, "x", "c012gn", plan)
    if p.w_feature != 1:
        p = layouts.with_operand_in(p, "w", "c012go", plan)
    layouts.with_result_in(p, "012ngo", plan, outer.lower, p.y_feature == 1)


def _channelwise(p: Problem, plan: Planner) -> None:
    if p.x_group != 1:
        p = layouts.with_operand_in(p, "x", "nc012g", plan)
    if p.w_group != 1:
        p = layouts.with_operand_in(p, "w", "oc012g", plan)
    if channelwise_sums.supports(p):
        layouts.with_result_in(p, "no012g", plan, channelwise_sums.lower)
    else:
        layouts.with_result_in(p, "no012g", plan, channelwise.lower, p.y_group == 1)


_METHODS = {"indirect": _indirect, "outer": _outer, "channelwise": _channelwise,
            "sliding": sliding.lower}
