"""Differences and integrals of sampled functions, and packing of bits.

`diff`, `gradient` and `trapezoid` read their operands with static slices instead of gathers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, AxisLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy import selection
from toile.numpy._helpers import arr, as_array, canonical_axes, canonical_axis, promote_inexact


def _along(x, axis, start, stop):
    return lax.slice_in_dim(x, start, stop, axis=axis)


def diff(a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None,
         append: ArrayLike | None = None) -> Array:
    """Compute differences between neighboring elements: each element minus the one before it.

    Args:
        a: array with at least one axis.
        n: number of times to take differences; it cannot be traced.
        axis: axis along which to take differences.
        prepend, append: values to join to the start and the end of `a` along the axis before taking
            differences; a number is repeated to fill one slice.

    Returns:
        An array whose length along the axis is the combined length of `prepend`, `a` and `append`,
        minus `n`. Differences of booleans are booleans, which are True where neighbors differ.

    >>> jnp.diff(jnp.array([1, 4, 9]), prepend=0)
    Array([1, 3, 5], dtype=int32)
    """
    a = as_array("diff", a)
    n = h.static_int(n, "'n' argument of jnp.diff")
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}{here()}")
    if a.ndim == 0:
        raise ValueError(f"diff requires input that is at least one dimensional; got {a}{here()}")
    axis = canonical_axis(axis, a.ndim)
    parts: list[Array] = []
    for extra in (prepend, a, append):
        if extra is None:
            continue
        extra = as_array("diff", extra)
        if extra.ndim == 0:
            extra = h.broadcast_to(extra, (*a.shape[:axis], 1, *a.shape[axis + 1:]))
        parts.append(extra)
    if len(parts) > 1:
        a = jnp.concatenate(parts, axis)
    step: Callable[..., Array] = jnp.not_equal if a.dtype == np.bool_ else jnp.subtract
    for _ in range(n):
        size = a.shape[axis]
        a = step(_along(a, axis, min(1, size), size), _along(a, axis, 0, max(size - 1, 0)))
    return a


def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None,
            to_begin: ArrayLike | None = None) -> Array:
    """Compute differences between neighboring elements of a flattened array.

    Args:
        ary: array to flatten.
        to_end: values to append to the differences; they are converted to the dtype of `ary`. None
            appends nothing.
        to_begin: values to put before the differences; they are converted to the dtype of `ary`.
            None prepends nothing.

    Returns:
        A one-dimensional array.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_end=0)
    Array([3, 5, 0], dtype=int32)
    """
    ary = jnp.ravel(as_array("ediff1d", ary))
    parts = [ary[1:] - ary[:-1]]
    if to_begin is not None:
        h.check("ediff1d", to_begin)
        parts.insert(0, lax.convert_element_type(jnp.ravel(to_begin), ary.dtype))
    if to_end is not None:
        h.check("ediff1d", to_end)
        parts.append(lax.convert_element_type(jnp.ravel(to_end), ary.dtype))
    return jnp.concatenate(parts)


def _gradient_along(f, spacing, axis):
    """Compute central differences inside, and one-sided ones at both ends."""
    n = f.shape[axis]
    cut = lambda lo, hi: _along(f, axis, lo, hi)
    first, last = cut(1, 2) - cut(0, 1), cut(n - 1, n) - cut(n - 2, n - 1)
    if np.ndim(spacing) == 0:
        inner = (cut(2, n) - cut(0, n - 2)) * 0.5
        return jnp.concatenate([part / spacing for part in (first, inner, last)], axis)
    if np.shape(spacing) != (n,):
        raise ValueError("Spacing arrays must have the same length as the dimension along which "
                         "the gradient is calculated." + here())
    other = tuple(k for k in range(f.ndim) if k != axis)
    step = lax.expand_dims(diff(arr(spacing)), other) if other else diff(arr(spacing))
    left, right = _along(step, axis, 0, n - 2), _along(step, axis, 1, n - 1)
    # the parabola through three points: second order also for uneven steps
    total = left + right
    a, b, c = -right / (left * total), (right - left) / (left * right), left / (right * total)
    inner = a * cut(0, n - 2) + b * cut(1, n - 1) + c * cut(2, n)
    ends = first / _along(step, axis, 0, 1), last / _along(step, axis, n - 2, n - 1)
    return jnp.concatenate([ends[0], inner, ends[1]], axis)


def gradient(f: ArrayLike, *varargs: ArrayLike, axis: AxisLike = None,
             edge_order: None = None) -> Array | list[Array]:
    """Approximate the derivatives of a function from samples by central differences.

    At both ends of an axis, where there is only one neighbor, one-sided differences are used.

    Args:
        f: samples of the function; at least 2 along each axis.
        *varargs: distance between samples, or an array of the samples' positions. Pass one argument
            for all axes, or one argument for each axis. The default distance is 1.
        axis: axis or axes to differentiate along; None for all axes.
        edge_order: not supported; must be None.

    Returns:
        An array of floats with the shape of `f`. If there are several axes, a list of such arrays,
        one for each axis.

    >>> jnp.gradient(jnp.array([1.0, 4.0, 9.0]))
    Array([3., 4., 5.], dtype=float32)
    """
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not "
                                  "supported." + here())
    h.check("gradient", f, *varargs)
    f, = promote_inexact(f)
    axes = tuple(range(f.ndim)) if axis is None else canonical_axes(axis, f.ndim)
    if not axes:
        return []
    if min(f.shape[i] for i in axes) < 2:
        raise ValueError(f"Shape of array too small to calculate a numerical gradient, at least 2 "
                         f"elements are required; got shape {f.shape}{here()}")
    if len(varargs) == 0:
        spacing: tuple[Any, ...] = (1.0,) * len(axes)
    elif len(varargs) == 1:
        spacing = varargs * len(axes)
    elif len(varargs) == len(axes):
        spacing = varargs
    else:
        raise TypeError(f"Invalid number of spacing arguments {len(varargs)} for "
                        f"axis={axis}{here()}")
    out = [_gradient_along(f, s, i) for s, i in zip(spacing, axes)]
    return out[0] if len(out) == 1 else out


def _steps(dx, shape, axis):
    """The distances between samples in an array of this shape, with `axis` moved to the end."""
    axis = canonical_axis(axis, len(shape))
    pieces = (*shape[:axis], shape[axis] - 1, *shape[axis + 1:])
    return jnp.moveaxis(h.broadcast_to(dx, pieces), axis, -1)


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0,
              axis: int = -1) -> Array:
    """Integrate samples of a function by the trapezoidal rule.

    Args:
        y: samples of the function.
        x: positions of the samples; None if the samples are evenly spaced.
        dx: distance between samples, if `x` is None.
        axis: axis to integrate along.

    Returns:
        The integrals: an array of floats with the shape of `y`, but without `axis`.

    >>> jnp.trapezoid(jnp.array([1.0, 2.0, 3.0]), jnp.array([0.0, 1.0, 3.0]))
    Array(6.5, dtype=float32)
    """
    if x is None:
        y, = promote_inexact(y, name="trapezoid")
        step = promote_inexact(arr(dx))[0]
        if step.ndim:
            step = _steps(step, y.shape, axis)
    else:
        y, x = promote_inexact(y, x, name="trapezoid")
        step = diff(x) if x.ndim == 1 else jnp.moveaxis(diff(x, axis=axis), axis, -1)
    y = jnp.moveaxis(y, axis, -1)
    return 0.5 * jnp.sum(step * (y[..., 1:] + y[..., :-1]), axis=-1)


def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1,
           period: ArrayLike = 2 * math.pi) -> Array:
    """Remove jumps from angles by adding multiples of a period.

    Args:
        p: real numbers, such as angles.
        discont: smallest jump to remove. If it is None or less than half a period, half a period is
            used.
        axis: axis to unwrap along.
        period: length of a period.

    Returns:
        An array with the shape of `p`. If `discont` is larger than half a period, neighbors differ
        by less than `discont`; otherwise, they differ by at most half a period. The dtype is a
        float dtype unless both `p` and `period` are integers.

    >>> jnp.unwrap(jnp.array([0, 3, 7]), period=4)
    Array([ 0, -1, -1], dtype=int32)
    """
    p = as_array("unwrap", p)
    if h.issubdtype(p.dtype, np.complexfloating):
        raise ValueError("jnp.unwrap does not support complex inputs." + here())
    if p.shape[canonical_axis(axis, p.ndim)] == 0:
        return h.default_inexact(p)
    axis = canonical_axis(axis, p.ndim)
    if h.issubdtype(p.dtype, np.integer) and isinstance(period, int):
        dtype = p.dtype
        interval: int | h.Array = period // 2
        edge = period % 2 == 0
    else:
        p = h.default_inexact(p)
        dtype, edge = p.dtype, True
        interval = jnp.divide(period, 2)
    discont = interval if discont is None else discont
    dd = diff(p, axis=axis)
    wrapped = jnp.mod(dd + interval, period) - interval
    if edge:
        wrapped = jnp.where((wrapped == -interval) & (dd > 0), interval, wrapped)
    shift = jnp.where(abs(dd) < discont, 0, wrapped - dd)
    n = p.shape[axis]
    rest = _along(p, axis, 1, n) + jnp.cumsum(shift, axis=axis)
    return lax.convert_element_type(jnp.concatenate([_along(p, axis, 0, 1), rest], axis), dtype)


# Bits.

def _bit_weights(order):
    if order not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'" + here())
    shifts = np.arange(8, dtype=np.uint8)
    return shifts if order == "little" else shifts[::-1].copy()


def packbits(a: ArrayLike, axis: int | None = None,
             bitorder: Literal["big", "little"] = "big") -> Array:
    """Pack groups of eight elements into bytes, with one bit for each element.

    Args:
        a: booleans or integers; nonzero integers count as 1.
        axis: axis to pack along; None for the flattened array.
        bitorder: whether the first element becomes the highest bit ("big") or the lowest
            ("little").

    Returns:
        An array of uint8. If there are not enough elements to fill the last byte, its remaining
        bits are 0.

    >>> jnp.packbits(jnp.array([1, 0, 1]))
    Array([160], dtype=uint8)
    """
    a = as_array("packbits", a)
    if not (h.issubdtype(a.dtype, np.integer) or a.dtype == np.bool_):
        raise TypeError("Expected an input array of integer or boolean data type" + here())
    shifts = _bit_weights(bitorder)
    a, axis = h.with_axis(a, axis)
    bits = lax.convert_element_type(selection.as_condition(a), np.uint8)
    bits = jnp.moveaxis(bits, axis, -1)
    n = bits.shape[-1]
    groups = -(-n // 8)
    bits = lax.pad(bits, lax.full((), 0, np.uint8),
                   [(0, 0, 0)] * (bits.ndim - 1) + [(0, 8 * groups - n, 0)])
    bits = lax.reshape(bits, (*bits.shape[:-1], groups, 8))
    values = bits << h.at_rank(jnp.asarray(shifts), bits.ndim)
    packed = lax.convert_element_type(jnp.sum(values, axis=-1), np.uint8)
    return jnp.moveaxis(packed, -1, axis)


def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None,
               bitorder: Literal["big", "little"] = "big") -> Array:
    """Unpack the bits of bytes into elements: the inverse of `packbits`.

    Args:
        a: array of uint8.
        axis: axis to unpack along; None for the flattened array.
        count: number of bits to return along the axis; None for all bits. If there are fewer bits,
            the result is padded with zeros. If `count` is -n, n bits are removed from the end.
        bitorder: whether the first element is the highest bit ("big") or the lowest ("little").

    Returns:
        An array of uint8 whose elements are 0 or 1.

    >>> jnp.unpackbits(jnp.array([160], dtype="uint8"), count=3)
    Array([1, 0, 1], dtype=uint8)
    """
    a = as_array("unpackbits", a)
    if a.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type" + here())
    shifts = jnp.asarray(_bit_weights(bitorder))
    a, axis = h.with_axis(a, axis)
    a = jnp.moveaxis(a, axis, -1)
    bits = (lax.expand_dims(a, (a.ndim,)) >> h.at_rank(shifts, a.ndim + 1)) & np.uint8(1)
    flat = lax.reshape(bits, (*a.shape[:-1], 8 * a.shape[-1]))
    if count is not None:
        n = flat.shape[-1]
        if count > n:
            flat = lax.pad(flat, lax.full((), 0, np.uint8),
                           [(0, 0, 0)] * (flat.ndim - 1) + [(0, count - n, 0)])
        else:
            flat = flat[..., :count]
    return jnp.moveaxis(flat, -1, axis)
