"""Steps of reductions whose order is free, which is what vectors need."""

from __future__ import annotations

from toile.backends.cpu.scalars import Scalars, register
from toile.compiler import totals
from toile.compiler.scalars import Value, kind


def combine(k: Scalars, kind_: str, total: Value, x: Value, any_order: bool = True) -> Value:
    """One step of a reduction; sums and products of floats may be taken in any order."""
    f = k.f
    if any_order and kind_ in ("reduce_sum", "reduce_prod") and kind(total.dtype) in "fc":
        if kind_ == "reduce_prod" and total.imag:
            return k.mul(total, x)
        op, type = ("fadd" if kind_ == "reduce_sum" else "fmul"), register(total.dtype)
        re = f.value(f"{op} reassoc {type} {total.name}, {x.name}")
        im = f.value(f"{op} reassoc {type} {total.imag}, {x.imag}") if total.imag else ""
        return Value(re, total.dtype, im)
    return totals.combine(k, kind_, total, x)
