"""Contraction of two raw arrays by axis labels, lowered to one `matmul`.

A plan is a function made once for each triple of label strings. It arranges the operands as (batch,
rows, summed) and (batch, summed, columns), by views where possible, multiplies, and puts the
result's axes in the requested order. Half-precision operands accumulate in float32; integers
accumulate exactly: in float64 if no partial sum can exceed its 53 bits, else in the result dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from toile.engine.locks import linear_algebra
from toile.engine.source import here

Array = Any
Module = Any
Plan = Callable[[Module, Array, Array], Array]

_EXACT = 2.0**53
ONE_THREAD = 1 << 18  # libraries compute products up to this size in the calling thread
_SMALL_PRODUCT = 4096  # below this many multiplications the integer loop of matmul is fast enough


@cache
def dtype_kind(dtype: np.dtype) -> str:
    """One of 'b' (bool), 'i', 'u', 'f', 'c', also for the extension types of ml_dtypes."""
    if dtype.kind in "biufc":
        return dtype.kind
    name = dtype.name
    for start, kind in (("bfloat", "f"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if name.startswith(start):
            return kind
    return dtype.kind


@cache
def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype in which sums of `dtype` are formed: float32 for shorter floats, else `dtype`."""
    if dtype_kind(dtype) == "f" and dtype.itemsize < 4:
        return np.dtype(np.float32)
    return dtype


def contract(
    xp: Module, x: Array, y: Array, lhs: str, rhs: str, out: str, dtype: np.dtype
) -> Array:
    """Sum of products over the labels of `lhs` and `rhs` that are not in `out`."""
    run = contraction_plan(lhs, rhs, out)
    if xp is np and x.size * y.size > ONE_THREAD:
        with linear_algebra:
            return _contract(run, xp, x, y, lhs, rhs, out, dtype)
    if x.dtype is dtype and y.dtype is dtype and dtype.char in "fdFD":  # NumPy's own are unique
        return run(xp, x, y)
    return _contract(run, xp, x, y, lhs, rhs, out, dtype)


def _contract(
    run: Plan, xp: Module, x: Array, y: Array, lhs: str, rhs: str, out: str, dtype: np.dtype
) -> Array:
    if x.dtype is dtype and y.dtype is dtype and dtype.char in "fdFD":
        return run(xp, x, y)
    dtype = np.dtype(dtype)
    kind = dtype_kind(dtype)
    if kind == "b":  # sums of non-negative numbers: positive iff one term is positive
        return xp.asarray(run(xp, x.astype(np.float32), y.astype(np.float32)) > 0)
    if kind in "iu":
        summed = prod(n for c, n in zip(lhs, x.shape, strict=True) if c not in out)
        rows = prod(n for c, n in zip(lhs, x.shape, strict=True) if c not in rhs)
        work = integer_workspace(xp, x, y, summed, rows * y.size, dtype)
    else:
        work = accumulator(dtype)
    result = run(xp, x.astype(work, copy=False), y.astype(work, copy=False))
    return from_workspace(result, dtype)


def integer_workspace(
    xp: Module, x: Array, y: Array, summed: int, products: int, dtype: np.dtype
) -> np.dtype:
    """float64 if sums of `summed` integer products are exact in it and it is faster, else
    `dtype`."""
    if products < _SMALL_PRODUCT or x.size == 0 or y.size == 0:
        return dtype
    bound = float(summed)
    for operand in (x, y):
        low, high = int(operand.min()), int(operand.max())
        bound *= max(abs(low), abs(high))
    return np.dtype(np.float64) if bound < _EXACT else dtype


def from_workspace(result: Array, dtype: np.dtype) -> Array:
    """Cast to the result dtype; integers wrap around, as if computed in it throughout."""
    if result.dtype == dtype:
        return result
    if dtype_kind(dtype) in "iu" and result.dtype.kind == "f":
        result = result.astype(np.int64)
    return result.astype(dtype)


def _labels(labels: str, *among: str, without: str = "") -> str:
    """The labels that are in all of `among` and not in `without`, in order."""
    return "".join(c for c in labels if c not in without and all(c in x for x in among))


@lru_cache(maxsize=8192)
def contraction_plan(lhs: str, rhs: str, out: str) -> Plan:
    """The function (xp, x, y) -> result for one triple of label strings."""
    batch = _labels(out, lhs, rhs)
    rows, columns = _labels(out, lhs, without=rhs), _labels(out, rhs, without=lhs)
    summed = _labels(lhs, rhs, without=out)
    if len(batch + rows + summed) != len(lhs) or len(batch + columns + summed) != len(rhs):
        raise ValueError(
            "contract: needed each label in two of the three strings, or in all of them, "
            f"got {lhs!r}, {rhs!r}, {out!r}{here()}"
        )
    free = _labels(out, without=batch)
    if rows and columns and free[0] in columns:  # (y^T x^T)^T, since y's axes come first in `out`
        mirrored = contraction_plan(rhs, lhs, out)
        return lambda xp, x, y: mirrored(xp, y, x)
    if not summed:
        return _product_plan(lhs, rhs, out)
    plain = _plain_plan(lhs, rhs, out, batch)
    return plain or _general_plan(lhs, rhs, out, batch, rows, columns, summed)


def _plain_plan(lhs: str, rhs: str, out: str, batch: str) -> Plan | None:
    """Products that are one matmul call on the operands themselves, or transposed."""
    if batch or len(lhs) > 2 or len(rhs) > 2:
        return None
    if len(lhs) == len(rhs) == 1:
        return lambda xp, x, y: xp.asarray(xp.matmul(x, y))
    left_flipped = len(lhs) == 2 and lhs[0] in rhs
    right_flipped = len(rhs) == 2 and rhs[0] not in lhs
    if len(lhs) + len(rhs) < len(out) + 2:
        return None
    if "".join(c for c in lhs + rhs if c in out) != out or len(out) != len(lhs) + len(rhs) - 2:
        return None
    if left_flipped and right_flipped:
        return lambda xp, x, y: xp.matmul(x.T, y.T)
    if left_flipped:
        return lambda xp, x, y: xp.matmul(x.T, y)
    if right_flipped:
        return lambda xp, x, y: xp.matmul(x, y.T)
    return lambda xp, x, y: xp.matmul(x, y)


def _product_plan(lhs: str, rhs: str, out: str) -> Plan:
    """Nothing is summed: a broadcast multiplication."""
    left_order = tuple(lhs.index(c) for c in out if c in lhs)
    right_order = tuple(rhs.index(c) for c in out if c in rhs)
    left_index = tuple(slice(None) if c in lhs else None for c in out)
    right_index = tuple(slice(None) if c in rhs else None for c in out)

    def run(xp: Module, x: Array, y: Array) -> Array:
        left = x.transpose(left_order)[left_index]
        return xp.asarray(left * y.transpose(right_order)[right_index])

    return run


def _arrange(labels: str, batch: str, first: str, second: str) -> tuple[Any, bool]:
    """Axis order (or None) for batch+first+second, or for the swapped order (then True)."""
    straight, mirrored = batch + first + second, batch + second + first
    # The label that is last in memory stays last, so that a copy, if needed, copies whole runs.
    swap = labels != straight and (labels == mirrored or labels[-1] not in second)
    order = mirrored if swap else straight
    return (None if order == labels else tuple(labels.index(c) for c in order)), swap


class _Operand:
    """How the axes of an operand map to batch, rows and columns of matrices."""

    __slots__ = ("batch", "order", "is_swapped", "split")

    def __init__(self, labels: str, batch: str, rows: str, columns: str):
        self.batch = len(batch)
        self.order, self.is_swapped = _arrange(labels, batch, rows, columns)
        lengths = len(rows), len(columns)
        self.split = lengths[::-1] if self.is_swapped else lengths

    def ordered(self, x: Array) -> Array:
        return x if self.order is None else x.transpose(self.order)

    def sizes(self, x: Array) -> tuple[Any, Any]:
        """The sizes of the axes that are rows, and of those that are columns, in order."""
        middle = self.batch + self.split[0]
        parts = x.shape[self.batch : middle], x.shape[middle:]
        return parts[::-1] if self.is_swapped else parts

    def matrices(self, x: Array) -> Array:
        """An operand, its axes already ordered, as matrices."""
        if self.split != (1, 1):
            x = _group(x, self.batch, self.split)
        return x.swapaxes(-1, -2) if self.is_swapped else x


def _general_plan(
    lhs: str, rhs: str, out: str, batch: str, rows: str, columns: str, summed: str
) -> Plan:
    """Group the axes into (batch, rows, summed) x (batch, summed, columns)."""
    left, right = _Operand(lhs, batch, rows, summed), _Operand(rhs, batch, summed, columns)
    grouped_result = not (len(rows) == len(columns) == 1)
    natural = batch + rows + columns
    back = None if natural == out else tuple(natural.index(label) for label in out)

    def run(xp: Module, x: Array, y: Array) -> Array:
        x, y = left.ordered(x), right.ordered(y)
        result = xp.matmul(left.matrices(x), right.matrices(y))
        if grouped_result:
            result = result.reshape(x.shape[: len(batch)] + left.sizes(x)[0] + right.sizes(y)[1])
        return result if back is None else result.transpose(back)

    return run


def _group(x: Array, batch: int, split: tuple[int, int]) -> Array:
    """Merge the axes after the batch into two groups of the given lengths."""
    shape, middle = x.shape, batch + split[0]
    return x.reshape(shape[:batch] + (prod(shape[batch:middle]), prod(shape[middle:])))
