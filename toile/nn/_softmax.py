"""Normalised exponentials and related reductions: softmax, logsumexp, standardize, one_hot.

All subtract the maximum first, so that no finite input overflows, and treat the maximum as a
constant when differentiating: its contribution cancels. `where` excludes elements from the
normalisation.
"""

import functools
import operator
import warnings

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine.source import here
from toile.nn._promote import array, default_float, inexact, is_complex, is_integer

__all__ = ["log_softmax", "logmeanexp", "logsumexp", "one_hot", "softmax", "standardize"]


def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, where=None):
    """log(sum(b·exp(a))) over `axis`; with `return_sign`, (log|sum|, sign of sum)."""
    if where is not None:
        a = jnp.where(where, a, 0)
    if b is None:
        (a,) = inexact("logsumexp", a)
    else:
        a, b = inexact("logsumexp", a, b)
        a = jnp.where(b != 0, a, -np.inf)  # a term with weight 0 must not set the maximum
    top = jnp.max(a.real, axis=axis, keepdims=True, where=where, initial=-np.inf)
    top = lax.stop_gradient(jnp.where(jnp.isfinite(top), top, jnp.zeros_like(top)))
    terms = jnp.exp(a - top.astype(a.dtype))
    if b is not None:
        terms = terms * b
    total = jnp.sum(terms, axis=axis, keepdims=keepdims, where=where)
    sign = lax.sign(total)
    if return_sign or not is_complex(a):
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


def logmeanexp(x, axis=None, where=None, keepdims=False):
    """log(mean(exp(x))) over `axis`."""
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    return total - jnp.log(_count(x, axis, where, keepdims, total.dtype))


def log_softmax(x, axis=-1, where=None):
    """Logarithm of `softmax`, computed without forming it."""
    x = array("log_softmax", x)
    top = jnp.max(x, axis, where=where, initial=-np.inf, keepdims=True)
    if where is not None:
        x = jnp.where(where, x, -np.inf)
    shifted = x - lax.stop_gradient(top)
    out = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, where=where, keepdims=True))
    return out if where is None else jnp.where(where, out, -np.inf)


def softmax(x, axis=-1, where=None):
    """exp(x) normalised to sum 1 along `axis`; excluded elements are 0."""
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


def standardize(x, axis=-1, mean=None, variance=None, epsilon=1e-5, where=None, *,
                algorithm="fast"):
    """(x - mean) / sqrt(variance + epsilon), with mean and variance over `axis` unless given."""
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


def one_hot(x, num_classes, *, dtype=None, axis=-1, out_sharding=None):
    """Indicator vectors of the indices `x` along a new axis; an index out of range gives 0."""
    num_classes = operator.index(num_classes)
    x = jnp.asarray(x)
    if not is_integer(x):
        warnings.warn(f"jax.nn.one_hot input should be integer-typed; got dtype={x.dtype}",
                      DeprecationWarning, stacklevel=2)
    dtype = default_float() if dtype is None else dtype
    if not hasattr(axis, "__index__"):  # the name of a mapped axis
        size = lax.axis_size(axis)
        if num_classes != size:
            raise ValueError(f"Expected num_classes to match the size of axis {axis}, but "
                             f"{num_classes} != {size}{here()}")
        return jnp.asarray(x == lax.axis_index(axis), dtype=dtype)
    if is_integer(x) and num_classes > int(jnp.iinfo(x.dtype).max):
        x = x.astype(np.int32)  # the classes would wrap around
    axis = operator.index(axis)
    if not -x.ndim - 1 <= axis <= x.ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension "
                         f"{x.ndim + 1}{here()}")
    axis = axis % (x.ndim + 1)
    shape = [1] * x.ndim
    shape.insert(axis, num_classes)
    classes = lax.broadcasted_iota(x.dtype, tuple(shape), axis)
    return (jnp.expand_dims(x, axis) == classes).astype(dtype)
