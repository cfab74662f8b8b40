"""Normalized exponentials and related reductions: softmax, logsumexp, standardize, one_hot.

The functions that compute exponentials subtract the maximum first, so that no finite input
overflows. Differentiation treats the maximum as a constant, because its contribution cancels.
`where` selects the elements that take part in a reduction.
"""

from __future__ import annotations

import functools
import operator
import warnings
from typing import Literal, overload

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.annotations import Array, ArrayLike, AxisLike, DTypeLike
from toile.engine.source import here
from toile.nn._promote import array, default_float, inexact, is_complex, is_integer
from toile.numpy._helpers import static_int
from toile.parallel.specs import ShardingLike


@overload
def logsumexp(
    a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: Literal[False] = False, where: ArrayLike | None = None
) -> Array: ...


@overload
def logsumexp(
    a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None, keepdims: bool = False,
    *, return_sign: Literal[True], where: ArrayLike | None = None
) -> tuple[Array, Array]: ...


def logsumexp(
    a: ArrayLike, axis: AxisLike = None, b: ArrayLike | None = None, keepdims: bool = False,
    return_sign: bool = False, where: ArrayLike | None = None
) -> Array | tuple[Array, Array]:
    """Compute the logarithm of a sum of exponentials, `log(sum(b * exp(a)))`, without overflow.

    If there are no elements, the result is -inf.

    Args:
        a: array of exponents.
        axis: axis or axes to sum over; None for all.
        b: factors by which the exponentials are multiplied, broadcast against `a`; None for 1. If
            some factors are negative, the sum may be negative; the result is then NaN unless
            `return_sign` is True.
        keepdims: whether to keep the axes that are summed over, with size 1.
        return_sign: whether to also return the sign of the sum.
        where: boolean array that selects the elements to include; None for all.

    Returns:
        An array without the axes that are summed over. If `return_sign` is True, a pair: the
        logarithm of the absolute value of the sum, and the sign of the sum.

    >>> toile.nn.logsumexp(jnp.array([1000.0, 1000.0]))
    Array(1000.6932, dtype=float32)
    >>> toile.nn.logsumexp(jnp.array([1.0, 1.0]), b=jnp.array([1.0, -2.0]), return_sign=True)
    (Array(1., dtype=float32), Array(-1., dtype=float32))
    """
    if where is not None:
        a = jnp.where(where, a, 0)
    if b is None:
        exponents = inexact("logsumexp", a)[0]
    else:
        exponents, b = inexact("logsumexp", a, b)
        # a term with weight 0 must not set the maximum
        exponents = jnp.where(b != 0, exponents, -np.inf)
    top = jnp.max(exponents.real, axis=axis, keepdims=True, where=where, initial=-np.inf)
    top = lax.stop_gradient(jnp.where(jnp.isfinite(top), top, jnp.zeros_like(top)))
    terms = jnp.exp(exponents - top.astype(exponents.dtype))
    if b is not None:
        terms = terms * b
    total = jnp.sum(terms, axis=axis, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    never_negative = b is None and not is_complex(exponents)
    if not never_negative and (return_sign or not is_complex(exponents)):
        total = jnp.abs(total)
    if not keepdims:
        top = jnp.reshape(top, total.shape)
    out = jnp.log(total) + top.astype(total.dtype)
    if return_sign:
        return out, sign
    if b is not None and not is_complex(out):
        out = jnp.where(sign < 0, jnp.array(np.nan, dtype=out.dtype), out)
    return out


def _count(x, axis, where, keepdims, dtype):
    if where is None:
        where = jnp.ones((1,) * jnp.ndim(x), dtype=bool)
    shape = jnp.broadcast_shapes(jnp.shape(x), jnp.shape(where))
    return jnp.sum(jnp.broadcast_to(where, shape), axis=axis, keepdims=keepdims, dtype=dtype)


def logmeanexp(
    x: ArrayLike, axis: AxisLike = None, where: ArrayLike | None = None, keepdims: bool = False
) -> Array:
    """Compute the logarithm of a mean of exponentials, `log(mean(exp(x)))`, without overflow.

    Args:
        x: array of exponents.
        axis: axis or axes to average over; None for all.
        where: boolean array that selects the elements to include; None for all.
        keepdims: whether to keep the axes that are averaged over, with size 1.

    Returns:
        An array without the axes that are averaged over.

    >>> toile.nn.logmeanexp(jnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float32)
    """
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    return total - jnp.log(_count(x, axis, where, keepdims, total.dtype))


def log_softmax(
    x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None
) -> Array:
    """Compute the logarithm of softmax, accurately even where softmax underflows to 0.

    Args:
        x: array of logits of a floating-point dtype.
        axis: axis or axes along which the exponentials of the results sum to 1.
        where: boolean array that selects the elements to include; None for all.

    Returns:
        An array with the shape of `x`. Excluded elements are -inf.

    >>> toile.nn.log_softmax(jnp.array([0.0, 1.0, 1000.0]))
    Array([-1000.,  -999.,     0.], dtype=float32)
    """
    x = array("log_softmax", x)
    top = jnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)
    if where is not None:
        x = jnp.where(where, x, -np.inf)
    shifted = x - lax.stop_gradient(top)
    out = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, where=where, keepdims=True))
    return out if where is None else jnp.where(where, out, -np.inf)


def softmax(x: ArrayLike, axis: AxisLike = -1, where: ArrayLike | None = None) -> Array:
    """Turn logits into probabilities: `exp(x)` divided by its sum along an axis.

    The maximum is subtracted first, so that the exponentials do not overflow. Where all logits are
    -inf, or any logit is inf or NaN, the results are NaN.

    Args:
        x: array of logits.
        axis: axis or axes along which the results sum to 1.
        where: boolean array that selects the elements to include; None for all.

    Returns:
        An array with the shape of `x`. Excluded elements are 0.

    >>> toile.nn.softmax(jnp.array([[0.0, 0.0], [1.0, 3.0]]))
    Array([[0.5       , 0.5       ],
           [0.11920292, 0.880797  ]], dtype=float32)
    >>> toile.nn.softmax(jnp.array([1.0, 5.0, 1.0]), where=jnp.array([True, False, True]))
    Array([0.5, 0. , 0.5], dtype=float32)
    """
    return _softmax(array("softmax", x), axis, where)


@functools.partial(custom_jvp, nondiff_argnums=(1,))
def _softmax(x, axis, where):
    top = jnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)
    if where is not None:
        x = jnp.where(where, x, -np.inf)
    weights = jnp.exp(x - top)
    out = weights / jnp.sum(weights, axis, where=where, keepdims=True)
    return out if where is None else jnp.where(where, out, 0)


@_softmax.defjvp
def _softmax_jvp(axis, primals, tangents):
    (x, where), (dx, _) = primals, tangents
    y = _softmax(x, axis, where)
    # d softmax = y (dx - <y, dx>): needs only the result, so the exponentials are not kept.
    return y, y * (dx - jnp.sum(y * dx, axis, where=where, keepdims=True))


def standardize(
    x: ArrayLike, axis: AxisLike = -1, mean: ArrayLike | None = None,
    variance: ArrayLike | None = None, epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None, *, algorithm: Literal["fast", "stable"] = "fast"
) -> Array:
    """Shift and scale an array to mean 0 and variance 1 along an axis.

    Args:
        x: array.
        axis: axis or axes over which the mean and variance are computed.
        mean: mean to subtract, broadcast against `x`; None for the mean of `x`.
        variance: variance to divide by, broadcast against `x`; None for the variance of `x`.
        epsilon: number that is added to the variance to avoid division by 0.
        where: boolean array that selects the elements to include in the mean and variance; None for
            all.
        algorithm: how the variance is computed. "fast" subtracts the squared mean from the mean of
            the squares, which loses precision where the mean is large compared with the deviations;
            "stable" averages the squared deviations.

    Returns:
        An array with the shape of `x`: `(x - mean) / sqrt(variance + epsilon)`.

    >>> toile.nn.standardize(jnp.array([1.0, 2.0, 3.0]))
    Array([-1.2247359,  0.       ,  1.2247359], dtype=float32)
    """
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "stable":
            centered = jnp.square(jnp.subtract(x, mean))
            variance = jnp.mean(centered, axis, keepdims=True, where=where)
        elif algorithm == "fast":  # E[x²] - E[x]², one pass; may come out below zero by rounding
            variance = jnp.mean(jnp.square(x), axis, keepdims=True, where=where) - jnp.square(mean)
            variance = jnp.clip(variance, 0)
        else:
            raise ValueError(f"Unknown algorithm '{algorithm}'. Expected 'fast' or "
                             f"'stable'.{here()}")
    return jnp.subtract(x, mean) * lax.rsqrt(variance + epsilon)


def one_hot(
    x: ArrayLike, num_classes: int, *, dtype: DTypeLike | None = None,
    axis: int | str = -1, out_sharding: ShardingLike | None = None
) -> Array:
    """Turn indices into vectors that are 1 at the index and 0 elsewhere.

    If an index is outside [0, num_classes), its vector is all zeros.

    Args:
        x: array of integers; other dtypes cause a DeprecationWarning.
        num_classes: length of the vectors.
        dtype: dtype of the result; None for float32 (float64 if 64-bit types are enabled).
        axis: position of the new axis in the result. If `axis` is the name of a mapped axis, which
            must have size `num_classes`, the vectors extend along that axis instead.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with one more axis than `x`, or with the same axes as `x` if `axis` is a name.

    >>> toile.nn.one_hot(jnp.array([0, 2, 5]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.],
           [0., 0., 0.]], dtype=float32)
    """
    num_classes = static_int(num_classes, "num_classes")
    indices = jnp.asarray(x)
    if not is_integer(indices):
        warnings.warn(f"jax.nn.one_hot input should be integer-typed; got dtype={indices.dtype}",
                      DeprecationWarning, stacklevel=2)
    dtype = default_float() if dtype is None else dtype
    if not hasattr(axis, "__index__"):  # the name of a mapped axis
        size = lax.axis_size(axis)
        if num_classes != size:
            raise ValueError(f"Expected num_classes to match the size of axis {axis}, but "
                             f"{num_classes} != {size}{here()}")
        return jnp.asarray(indices == lax.axis_index(axis), dtype=dtype)
    if is_integer(indices) and num_classes > int(jnp.iinfo(indices.dtype).max):
        indices = indices.astype(np.int32)  # the classes would wrap around
    place = operator.index(axis)
    if not -indices.ndim - 1 <= place <= indices.ndim:
        raise ValueError(f"axis {place} is out of bounds for array of dimension "
                         f"{indices.ndim + 1}{here()}")
    place %= indices.ndim + 1
    shape = [1] * indices.ndim
    shape.insert(place, num_classes)
    classes = lax.broadcasted_iota(indices.dtype, tuple(shape), place)
    return (jnp.expand_dims(indices, place) == classes).astype(dtype)
