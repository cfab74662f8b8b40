"""Running sums, products, extrema and log-sum-exps of raw arrays along one axis.

The dtype is that of the operand: integers wrap around, short floats are accumulated in float32
and rounded once. float32 sums and products along long axes run in float64, because a sequential
float32 sum is less accurate than the tree that a compiler would use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile.primitives.arrays.contraction import accumulator

Array = Any
Module = Any

_UFUNCS = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "logsumexp": "logaddexp",
}  # fmt: skip
_LONG = 128


def cumulative(xp: Module, x: Array, axis: int, kind: str, reverse: bool) -> Array:
    """All partial results of folding `kind` along `axis`, from the end if `reverse`."""
    if x.size == 0:
        return x
    dtype = x.dtype
    work = accumulator(dtype)
    if kind in ("sum", "prod") and dtype.char in "fF" and x.shape[axis] > _LONG:
        work = np.dtype(np.float64 if dtype.char == "f" else np.complex128)
    if reverse:
        x = xp.flip(x, axis)
    if kind == "logsumexp" and dtype.kind == "c":
        result = _scan_by_doubling(xp, x, axis, lambda a, b: _complex_logaddexp(xp, a, b))
    elif xp is not np:
        ufunc = getattr(xp, _UFUNCS[kind])
        result = _scan_by_doubling(xp, x.astype(work, copy=False), axis, ufunc)
    else:
        ufunc = getattr(np, _UFUNCS[kind])
        result = ufunc.accumulate(x.astype(work, copy=False), axis=axis, dtype=work)
    if reverse:
        result = xp.flip(result, axis)
    return result.astype(dtype, copy=False)


def _scan_by_doubling(
    xp: Module, x: Array, axis: int, combine: Callable[[Array, Array], Array]
) -> Array:
    """Inclusive scan in log2(n) whole-array steps: after step k each entry covers 2^k elements."""
    before, shift = (slice(None),) * axis, 1
    while shift < x.shape[axis]:
        head = x[before + (slice(None, shift),)]
        tail = combine(x[before + (slice(None, -shift),)], x[before + (slice(shift, None),)])
        x = xp.concatenate([head, tail], axis=axis)
        shift *= 2
    return x


def _complex_logaddexp(xp: Module, a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)), scaled by the larger real part."""
    larger = xp.where(a.real >= b.real, a, b)
    smaller = xp.where(a.real >= b.real, b, a)
    difference = xp.where(xp.isneginf(larger.real), 0, smaller - larger)
    total = larger + xp.log1p(xp.exp(difference))
    # The imaginary part is an angle: bring it back into (-pi, pi].
    angle = total.imag - 2 * np.pi * xp.round(total.imag / (2 * np.pi))
    return (total.real + 1j * angle).astype(a.dtype)
