"""Rounding that takes the inputs of products into account: GPTQ and AWQ.

Both methods treat a parameter as a matrix w [K, N], whose K rows correspond to the inputs of a
product. They reduce the error of the product: the sum of (x w - x q)² over typical inputs x.

GPTQ rounds one row after another. After each row, it changes the later rows so that they cancel
as much of the error as possible. Let H⁻¹ = UᵀU be the inverse of the moments H = E[xᵀx]. If
rounding row k causes the error e, row j is changed by -U[k, j] e / U[k, k].

AWQ multiplies rows by factors before rounding, and divides the result by them. Rows of large inputs
become larger, so their relative error becomes smaller. The factors are powers of the mean
magnitudes of the inputs. Several exponents are tried, and the one with the smallest error is used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from toile import numpy as jnp
from toile.engine.source import here
from toile.quantization.arrays import QuantizedArray
from toile.quantization.input_statistics import InputStatistics
from toile.quantization.rounding import (
    Form,
    Grouped,
    assembled,
    grouped,
    scales_of,
    stored_numbers,
)

DAMPING = 0.01  # fraction of the mean moment that is added, so that the inverse exists
BLOCK = 128  # number of rows after which the later rows are changed
POWERS = 11  # number of exponents from 0 to 1 that AWQ tries


class _Matrix(NamedTuple):
    """A parameter as a matrix [K, N]; the axis of the groups is the last axis of the rows."""

    w: np.ndarray
    order: tuple[int, ...]  # the axes of the parameter: first the axes of rows, then of columns
    shape: tuple[int, ...]  # shape of the parameter, with its axes in this order
    length: int  # length along the axis of the groups

    def restored(self, matrix: np.ndarray) -> Any:
        """Convert a matrix of this shape to an array with the parameter's shape."""
        return jnp.asarray(matrix.reshape(self.shape).transpose(np.argsort(self.order)))


def _matrix(w: Any, axis: int, found: InputStatistics) -> tuple[_Matrix, np.ndarray, np.ndarray]:
    """The matrix of a parameter, and the moments and magnitudes of its inputs in the same order."""
    axis %= w.ndim
    if axis not in found.axes:
        raise ValueError(
            f"quantize: needed groups along an axis over which products sum, which are "
            f"{found.axes}, got axis={axis} of an array of shape {tuple(w.shape)} (choose another "
            f"axis, or method='round'){here()}")
    rows = [i for i in found.axes if i != axis] + [axis]
    order = (*rows, *(i for i in range(w.ndim) if i not in rows))
    moved = np.asarray(w, np.float64).transpose(order)
    sizes = [w.shape[i] for i in found.axes]
    numbers = np.arange(int(np.prod(sizes))).reshape(sizes)
    which = numbers.transpose([found.axes.index(i) for i in rows]).reshape(-1)
    matrix = _Matrix(moved.reshape(len(which), -1), order, moved.shape, w.shape[axis])
    return matrix, found.moments[np.ix_(which, which)], found.magnitudes[which]


class _Groups(NamedTuple):
    """Scales and zeros of a matrix: one row for each group."""

    scales: np.ndarray
    zeros: np.ndarray | None


def _scales(rows: np.ndarray, form: Form) -> tuple[np.ndarray, Any]:
    """The scales and zeros of the columns of one group."""
    scales, zeros = scales_of(rows.T, form)
    return np.asarray(scales), None if zeros is None else np.asarray(zeros)


def _rounded(row: np.ndarray, form: Form, scales: np.ndarray, zeros: Any) -> np.ndarray:
    """Return the numbers that are stored for a row."""
    numbers = row / scales + (0 if zeros is None else zeros)
    numbers = np.clip(numbers, form.least, form.most)
    return numbers.astype(form.stored).astype(np.float64) if form.is_float else np.round(numbers)


def _value(numbers: np.ndarray, scales: np.ndarray, zeros: Any) -> np.ndarray:
    return (numbers - (0 if zeros is None else zeros)) * scales


def gptq(
    w: Any, form: Form, group: int | None, axis: int, found: InputStatistics, act_order: bool
) -> QuantizedArray:
    """Round one row after another, and change later rows to cancel the error."""
    matrix, moments, _ = _matrix(w, axis, found)
    length = matrix.length
    size = min(group or length, length)
    per_axis = -(-length // size)
    k = len(matrix.w)
    group_of = np.arange(k) // length * per_axis + np.arange(k) % length // size
    rows = matrix.w.copy()
    unseen = np.diag(moments) == 0
    moments = moments + np.diag(np.where(unseen, 1, DAMPING * np.diag(moments).mean()))
    order = np.argsort(-np.diag(moments), kind="stable") if act_order else np.arange(k)
    upper = np.linalg.cholesky(np.linalg.inv(moments[np.ix_(order, order)])).T
    known: dict[int, tuple[np.ndarray, Any]] = {}
    if act_order:  # rows of a group are not neighbors, so scales are computed from unchanged rows
        known = {g: _scales(rows[group_of == g], form) for g in range(group_of[-1] + 1)}
    numbers = np.empty_like(rows)
    for start in range(0, k, BLOCK):
        block = order[start : start + BLOCK]
        errors = np.empty((len(block), rows.shape[1]))
        for i, row in enumerate(block):
            at, g = start + i, int(group_of[row])
            if g not in known:
                mine = np.flatnonzero(group_of == g)
                known[g] = _scales(_current(rows, mine, upper, slice(start, start + len(block)),
                                            errors[:i]), form)
            numbers[row] = _rounded(rows[row], form, *known[g])
            errors[i] = (rows[row] - _value(numbers[row], *known[g])) / upper[at, at]
            rows[block[i + 1 :]] -= np.outer(upper[at, at + 1 : start + len(block)], errors[i])
        rest = order[start + BLOCK :]
        rows[rest] -= upper[start : start + BLOCK, start + BLOCK :].T @ errors
    scales = np.stack([known[g][0] for g in range(len(known))])
    zeros = None if form.symmetric else np.stack([known[g][1] for g in range(len(known))])
    return _packed(matrix, numbers, _Groups(scales, zeros), form, size, axis % w.ndim - w.ndim,
                   w.dtype)


def _current(
    rows: np.ndarray, mine: np.ndarray, upper: np.ndarray, block: slice, errors: np.ndarray
) -> np.ndarray:
    """Return the rows of a group, changed for the errors of the rounded rows of a block.

    The rows inside the block have already been changed."""
    found = rows[mine].copy()
    late = mine >= block.stop
    found[late] -= upper[block.start : block.start + len(errors), mine[late]].T @ errors
    return found


def _packed(
    matrix: _Matrix, numbers: np.ndarray, groups: _Groups, form: Form, size: int, axis: int,
    dtype: Any,
) -> QuantizedArray:
    """The quantized array with these stored numbers [K, N] and scales [groups, N]."""
    stored = jnp.moveaxis(matrix.restored(numbers.astype(np.float32)), axis, -1)
    extra = -matrix.length % size
    stored = jnp.pad(stored, [(0, 0)] * (stored.ndim - 1) + [(0, extra)])
    stored = stored.reshape(*stored.shape[:-1], -1, size)
    at = np.argsort(matrix.order)[axis]
    sizes = list(matrix.shape)
    sizes[at] = -(-matrix.length // size)

    def along(values: np.ndarray) -> Any:
        array = values.astype(np.float32).reshape(sizes).transpose(np.argsort(matrix.order))
        return jnp.moveaxis(jnp.asarray(array), axis, -1)

    zeros = None if groups.zeros is None else along(groups.zeros)
    where = Grouped(stored, matrix.length, size, axis)
    return assembled(stored, along(groups.scales), zeros, form, where, dtype)


def awq(
    w: Any, form: Form, group: int | None, axis: int, found: InputStatistics
) -> QuantizedArray:
    """Multiply rows by powers of the magnitudes of their inputs, round, and divide."""
    matrix, moments, magnitudes = _matrix(w, axis, found)
    axis = axis % w.ndim - w.ndim
    best: tuple[float, Any, Any] | None = None
    for power in np.linspace(0, 1, POWERS):
        factors = np.maximum(magnitudes, 1e-4 * max(magnitudes.max(), 1e-30)) ** power
        factors = (factors / np.sqrt(factors.max() * factors.min())).astype(np.float32)
        scaled = matrix.restored((matrix.w * factors[:, None]).astype(np.float32))
        where = grouped(scaled, group, axis)
        scales, zeros = scales_of(where.rows, form)
        q = assembled(stored_numbers(where.rows, form, scales, zeros), scales, zeros, form, where,
                      w.dtype)
        rounded = np.asarray(q, np.float64).transpose(matrix.order).reshape(matrix.w.shape)
        error = rounded / factors[:, None] - matrix.w
        loss = float(np.sum(error * (moments @ error)))
        if best is None or loss < best[0]:
            best = loss, q, factors
    assert best is not None
    _, q, factors = best
    columns = [n if i < len(found.axes) else 1 for i, n in enumerate(matrix.shape)]
    inverse = (1 / factors).reshape(columns).transpose(np.argsort(matrix.order))
    return replace(q, factors=jnp.asarray(inverse))
