"""Samplers that transform uniform numbers by an inverse distribution function."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axis
from toile.parallel.specs import ShardingLike
from toile.random import _arguments as args
from toile.random._arguments import convert
from toile.random.bits import gumbel_mode, gumbel_noise, uniform_between, unit


@args.placed
def exponential(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the exponential distribution with mean 1.

    The density is `exp(-x)` for `x >= 0`.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.exponential(key(0), (3,)).shape
    (3,)
    """
    return standard_exponential(*args.sampling("exponential", key, shape, dtype))


def standard_exponential(key, shape, dtype):
    """Exponential numbers -log(1 - u) from a typed key, or from each key of an array."""
    return -lax.log1p(-unit(key, shape, dtype))


@args.placed
def gumbel(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None,
    mode: Literal["highest", "high", "low"] | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the standard Gumbel distribution.

    The density is `exp(-x - exp(-x))`. If Gumbel noise is added to logits, the index of the
    maximum is a sample from the categorical distribution (see `categorical`).

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        mode: how many random bits are used for each number. "low", the default, is the fastest
            mode, but its float32 numbers do not exceed about 16. "high" and "highest" use more bits
            and reach farther into the upper tail.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.gumbel(key(0), (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling("gumbel", key, shape, dtype)
    return gumbel_noise(key, shape, dtype, gumbel_mode(mode))


@args.placed
def categorical(
    key: Array, logits: ArrayLike, axis: int = -1, shape: ShapeLike | None = None,
    replace: bool = True, mode: Literal["highest", "high", "low"] | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw indices with the probabilities `softmax(logits)`.

    Args:
        key: random key; do not use it again.
        logits: logarithms of the probabilities along `axis`, up to a constant; -inf for an outcome
            that never occurs.
        axis: the axis of the outcomes in `logits`.
        shape: shape of the result, to which the shape of `logits` without `axis` must broadcast.
            If `shape` is None, one index is drawn for each vector of logits.
        replace: whether an outcome can be drawn more than once. If False, the draws along those
            leading axes of `shape` that `logits` does not have are distinct.
        mode: precision of the Gumbel noise that is added to the logits, as in `gumbel`.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An integer array of indices along `axis`.

    Raises:
        ValueError: `replace` is False, and more draws are requested than there are outcomes.

    >>> logits = jnp.log(jnp.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]))
    >>> toile.random.categorical(key(0), logits)
    Array([1, 2], dtype=int32)
    >>> toile.random.categorical(key(0), logits, shape=(4, 2)).shape
    (4, 2)
    """
    key = args.one_key("categorical", key)
    args.check_arraylike("categorical", logits)
    scores = jnp.asarray(logits)
    axis = canonicalize_axis(axis, scores.ndim) - scores.ndim
    batch = scores.shape[:axis] + (scores.shape[axis + 1:] if axis < -1 else ())
    sizes = batch if shape is None else args.canonical_shape(shape)
    if shape is not None:
        args.check_shape("categorical", sizes, batch)
    prefix = sizes[:len(sizes) - len(batch)]
    if replace:  # the largest of logits + Gumbel noise
        rest = list(sizes[len(prefix):])
        rest.insert(axis % scores.ndim, scores.shape[axis])
        noise = gumbel_noise(key, (*prefix, *rest), scores.dtype, gumbel_mode(mode))
        return jnp.argmax(noise + lax.expand_dims(scores, tuple(range(len(prefix)))), axis=axis)
    scores = scores + gumbel_noise(key, scores.shape, scores.dtype, gumbel_mode(mode))
    count = math.prod(prefix)
    if count > scores.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({count}) cannot exceed number of categories "
            f"({scores.shape[axis]}).{here()}")
    _, order = lax.top_k(jnp.moveaxis(scores, axis, -1), count)
    return jnp.moveaxis(order, -1, 0).reshape(sizes)


@args.placed
def laplace(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the Laplace distribution with mean 0 and scale 1.

    The density is `exp(-|x|) / 2`.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.laplace(key(0), (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling("laplace", key, shape, dtype)
    low = np.array(-1 + dtypes.finfo(dtype).epsneg, dtype)
    u = uniform_between(key, shape, dtype, low, 1.0)
    return lax.sign(u) * lax.log1p(-lax.abs(u))


@args.placed
def logistic(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the logistic distribution with mean 0 and scale 1.

    The density is `exp(-x) / (1 + exp(-x))**2`, and the distribution function is the sigmoid.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.logistic(key(0), (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling("logistic", key, shape, dtype)
    x = uniform_between(key, shape, dtype, np.array(dtypes.finfo(dtype).tiny, dtype), 1.0)
    return args.log(x) - lax.log1p(-x)


@args.placed
def cauchy(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the standard Cauchy distribution.

    The density is `1 / (pi * (1 + x**2))`. The distribution has no mean.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.cauchy(key(0), (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling("cauchy", key, shape, dtype)
    u = uniform_between(key, shape, dtype, np.array(dtypes.finfo(dtype).eps, dtype), 1.0)
    pi, half = (np.array(v, dtype)[()] for v in (np.pi, 0.5))
    return lax.tan((u - half) * pi)


@args.placed
def pareto(
    key: Array, b: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the Pareto distribution with minimum 1.

    The density is `b / x**(b + 1)` for `x >= 1`.

    Args:
        key: random key; do not use it again.
        b: positive exponent.
        shape: shape of the result, to which `b` must broadcast; None for the shape of `b`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    Differences:
        The numbers that `numpy.random.Generator.pareto` draws are smaller by 1.

    >>> x = toile.random.pareto(key(0), jnp.array([1.0, 3.0]), (50, 2))
    >>> x.shape
    (50, 2)
    >>> (x >= 1).all()
    Array(True, dtype=bool)
    """
    key, shape, dtype = args.sampling_with("pareto", key, shape, dtype, b)
    e = standard_exponential(key, shape, dtype)
    return args.exp(args.divide(e, args.to_rank(convert(b, dtype), len(shape))))


def weibull_min(
    key: Array, scale: ArrayLike, concentration: ArrayLike, shape: ShapeLike = (),
    dtype: DTypeLike | None = None
) -> Array:
    """Draw floats from the Weibull distribution.

    For scale 1, the density is `c * x**(c - 1) * exp(-x**c)` for `x >= 0`, where `c` is
    `concentration`.

    First, an array of shape `shape` is drawn, and then the parameters are broadcast against it.
    Therefore, if the parameters are arrays and `shape` is `()`, all results come from a single
    draw.

    Args:
        key: random key; do not use it again.
        scale: factor by which the numbers are multiplied.
        concentration: positive exponent `c`.
        shape: shape of the array of independent draws.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).

    Returns:
        An array with the shape to which `shape` and the shapes of the parameters broadcast.

    >>> toile.random.weibull_min(key(0), 1.0, jnp.array([0.5, 2.0]), (5, 2)).shape
    (5, 2)
    """
    u = unit(*args.sampling("weibull_min", key, shape, dtype))
    return jnp.power(-jnp.log1p(-u), 1.0 / concentration) * scale


@args.placed
def geometric(
    key: Array, p: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw integers from the geometric distribution.

    Each integer is the number of independent trials up to and including the first success, where
    `p` is the probability of success. The probability of `k` is `p * (1 - p)**(k - 1)` for
    `k = 1, 2, ...`.

    Args:
        key: random key; do not use it again.
        p: probability of success in one trial.
        shape: shape of the result, to which `p` must broadcast; None for the shape of `p`.
        dtype: integer dtype; None for int32 (int64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.geometric(key(0), 0.2, (4,))
    Array([1, 1, 5, 4], dtype=int32)
    """
    key = args.one_key("geometric", key)
    dtype = args.any_dtype("geometric", dtype, int)
    if not dtypes.issubdtype(dtype, np.integer):
        raise ValueError(f"dtype argument to `geometric` must be an int dtype, got {dtype}{here()}")
    shape = args.joint_shape("geometric", shape, p)
    args.check_arraylike("geometric", p)
    p = args.inexact(p)[0]
    u = unit(key, shape, p.dtype)
    u = jnp.where(u == 0, p.dtype.type(1), u)
    log_failure = jnp.broadcast_to(lax.log1p(-p), shape)
    return (lax.floor(args.log(u) / log_failure) + 1).astype(dtype)


@args.placed
def triangular(
    key: Array, left: ArrayLike, mode: ArrayLike, right: ArrayLike,
    shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the triangular distribution.

    The density rises linearly from 0 at `left` to its peak at `mode`, and falls linearly to 0 at
    `right`.

    Args:
        key: random key; do not use it again.
        left: lower end of the interval.
        mode: position of the peak, which must be between `left` and `right`; this is not checked.
        right: upper end of the interval.
        shape: shape of the result, to which the parameters must broadcast; None for the shape that
            they broadcast to.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> x = toile.random.triangular(key(0), 0.0, 0.2, 1.0, (100,))
    >>> x.shape, bool((x >= 0).all() and (x <= 1).all())
    ((100,), True)
    """
    key, shape, dtype = args.sampling_with("triangular", key, shape, dtype, left,
                                           mode, right)
    left, mode, right = (args.spread(v, shape, dtype) for v in (left, mode, right))
    u = unit(key, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return jnp.where(u < (mode - left) / (right - left), rising, falling)
