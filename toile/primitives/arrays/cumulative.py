"""Running sums, products, extrema and log-sum-exps of raw arrays, and linear recurrences.

The dtype is that of the operand: integers wrap around, short floats are accumulated in float32
and rounded once. float32 sums and products along long axes run in float64, because a sequential
float32 sum is less accurate than the tree that a compiler would use.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

import numpy as np

from toile.primitives.arrays.contraction import accumulator

Array = Any
Module = Any

_UFUNCS = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "logsumexp": "logaddexp",
}  # fmt: skip
_LONG = 128
_WIDE = 4096  # number of columns from which a Python loop over all steps costs little


def _work_dtype(dtype: np.dtype, n: int) -> np.dtype:
    """The dtype in which sums and products along an axis of size n are accumulated."""
    if dtype.char in "fF" and n > _LONG:
        return np.dtype(np.float64 if dtype.char == "f" else np.complex128)
    return accumulator(dtype)


def cumulative(xp: Module, x: Array, axis: int, kind: str, reverse: bool) -> Array:
    """All partial results of folding `kind` along `axis`, from the end if `reverse`."""
    if x.size == 0:
        return x
    dtype = x.dtype
    work = _work_dtype(dtype, x.shape[axis] if kind in ("sum", "prod") else 0)
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


def linear_recurrence(
    xp: Module, a: Array, b: Array, axis: int, reverse: bool, shifted: bool
) -> Array:
    """h[t] = a[t] h[t - 1] + b[t] along `axis`; see `primitives.recurrences`."""
    if b.size == 0:
        return b
    work = _work_dtype(b.dtype, b.shape[axis])
    a, b, dtype = (*(xp.moveaxis(x, axis, 0).astype(work, copy=False) for x in (a, b)), b.dtype)
    if reverse:
        a, b = a[::-1], b[::-1]
    if shifted:
        a = xp.concatenate([a[:1], a[:-1]])
    h = _states(xp, a, b)
    return xp.moveaxis(h[::-1] if reverse else h, 0, axis).astype(dtype, copy=False)


def _states(xp: Module, a: Array, b: Array) -> Array:
    """h[0] = b[0], h[t] = a[t] h[t - 1] + b[t] along the first axis.

    Many steps are divided into blocks, which are advanced together. First, the product of the
    coefficients of each block is computed, and its last state if the state before it is 0. Then a
    recurrence over these gives the states from which the following blocks start."""
    n, out = len(b), xp.empty(b.shape, b.dtype)
    out[0] = b[0]
    done = 1
    if n > _LONG and (xp is not np or b[0].size < _WIDE):
        size = isqrt(n)
        done = n // size * size
        factors, terms, h = (x[:done].reshape(-1, size, *b.shape[1:]) for x in (a, b, out))
        product, state = factors[:, 0], terms[:, 0]
        for i in range(1, size):
            product, state = product * factors[:, i], factors[:, i] * state + terms[:, i]
        ends = _states(xp, product, state)
        h[0, 0] = b[0]
        h[1:, 0] = factors[1:, 0] * ends[:-1] + terms[1:, 0]
        for i in range(1, size):
            h[:, i] = factors[:, i] * h[:, i - 1] + terms[:, i]
    for i in range(done, n):
        out[i] = a[i] * out[i - 1] + b[i]
    return out
