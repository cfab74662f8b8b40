"""Short floats in and out of convolutions, which sum in float32.

Dense arrays are converted element by element, rounding to nearest even.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from toile.backends.cpu import elements, ir, spans
from toile.backends.cpu.ir import Function
from toile.backends.cpu.launches import Launch, Planner
from toile.compiler.geometry import dense
from toile.compiler.operands import Operand

_CHUNK = 1 << 14


def supported(dtype: Any) -> bool:
    """Whether elements are floats that convert."""
    return elements.supported(dtype) and elements.is_float(dtype)


def work_type(dtype: Any) -> str:
    """The type in which a result of `dtype` is summed."""
    return elements.work_type(dtype)


def converted(x: Operand, type: str, plan: Planner) -> Operand:
    """`x` in a type of arithmetic."""
    dtype = np.dtype(np.float32 if type == "float" else np.float64)
    if x.dtype == dtype:
        return x
    x = plan.contiguous(x)
    out = dense(plan.scratch(x.size * dtype.itemsize), x.shape, dtype)
    convert(out, x, plan)
    return out


def convert(out: Operand, x: Operand, plan: Planner) -> None:
    """out = x, both dense."""
    text = convert_text(x.dtype, out.dtype)
    rows = spans.elements(x.ref, x.dtype.itemsize, out.ref, out.dtype.itemsize)
    plan.stage(Launch(text, (x.ref, out.ref), x.size, _CHUNK, "convert", rows=rows))


@cache
def convert_text(source: Any, target: Any) -> str:
    """Elements of one dtype as another."""
    body = Function(
        "body", ["i64 %lo", "i64 %hi", "ptr noalias %x", "ptr noalias %y"], internal=True,
        attributes="nounwind noinline",
    )  # fmt: skip
    wide, narrow = elements.work_type(source), elements.work_type(target)
    with body.loop("%lo", "%hi", vectorize=True) as i:
        place = body.offset("%x", body.mul(i, source.itemsize))
        value = elements.load(body, source, place)
        if wide != narrow:
            how = "fpext" if narrow == "double" else "fptrunc"
            value = body.value(f"{how} {wide} {value} to {narrow}")
        elements.store(body, target, value, body.offset("%y", body.mul(i, target.itemsize)))
    f = ir.kernel()
    x, y = f.buffer(0), f.buffer(2)
    f.do(f"call void @body(i64 %lo, i64 %hi, ptr {x}, ptr {y})")
    return ir.module(body, f)
