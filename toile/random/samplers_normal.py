"""Samplers built on the normal distribution.

A standard normal number is `sqrt(2) * erf_inv(u)`, where `u` is uniform in (-1, 1).
"""

from __future__ import annotations

import functools
import operator
from typing import Any, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.conversion import new_array
from toile.engine.source import here
from toile.numpy._helpers import at_rank
from toile.parallel.specs import ShardingLike
from toile.primitives.arrays import special
from toile.primitives.arrays.threefry import unit_floats
from toile.random import _arguments as args
from toile.random._arguments import convert
from toile.random.bits import uniform_between, unit


@args.placed
def normal(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw numbers from the normal distribution with mean 0 and variance 1.

    The density is `exp(-x**2 / 2) / sqrt(2 * pi)`. Complex numbers have independent real and
    imaginary parts of variance 1/2.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point or complex dtype; None for float32 (float64 if 64-bit types are
            enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.normal(key(0), (3,))
    Array([ 1.6226422 ,  2.0252647 , -0.43359444], dtype=float32)
    >>> mean, deviation = 5.0, 2.0
    >>> (mean + deviation * toile.random.normal(key(0), (2, 3))).shape
    (2, 3)
    """
    return standard_normal(
        *args.sampling("normal", key, shape, dtype, allow_complex=True))


_SAME_BITS = ("float32", "float16")  # inside and outside jit; others differ in the last bit


@functools.cache
def _bounds_of(dtype):
    """The float next to -1, and sqrt(2), in `dtype`."""
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype), dtype=dtype)
    return low[()], np.array(np.sqrt(2), dtype)[()]


@functools.partial(args.compiled_if_many, only=_SAME_BITS)
def standard_normal(key, shape, dtype):
    """Standard normal numbers from a typed key, or from each key of an array."""
    if dtypes.issubdtype(dtype, np.complexfloating):
        real = dtypes.dtype_to_real(dtype)
        re, im = (standard_normal(k, shape, real).astype(dtype) for k in args.split_key(key))
        return (re + 1j * im) / np.array(np.sqrt(2), dtype)
    low, root = _bounds_of(dtype)
    two = dtype.type(2)  # 2 u is exact, so 2 u + low rounds once
    words = args.concrete_words(key)
    if words is None:
        step = args.stepwise
        u = lax.max(low, step(unit(key, shape, dtype) * two + low))
        return step(step(lax.erf_inv(u)) * root)
    x = unit_floats(np, words, shape, dtype)
    x *= two
    x += low
    x = special.erf_inv(np, np.maximum(x, low))
    x *= root
    return new_array(x)


@args.placed
def truncated_normal(
    key: Array, lower: ArrayLike, upper: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the standard normal distribution restricted to an interval.

    The density is proportional to `exp(-x**2 / 2)` for `lower < x < upper`, and 0 elsewhere.

    Args:
        key: random key; do not use it again.
        lower: lower end of the interval.
        upper: upper end of the interval.
        shape: shape of the result, to which `lower` and `upper` must broadcast; None for the shape
            that they broadcast to.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> x = toile.random.truncated_normal(key(0), -1.0, 2.0, (100,))
    >>> x.shape, bool((x > -1).all() and (x < 2).all())
    ((100,), True)
    """
    if shape is not None:
        shape = args.canonical_shape(shape)
    key = args.one_key("truncated_normal", key)
    dtype = args.float_dtype("truncated_normal", dtype)
    shape = args.joint_shape("truncated_normal", shape, lower, upper)
    return _truncated_normal(key, shape, dtype, lower, upper)


@functools.partial(args.compiled_if_many, only=_SAME_BITS)
def _truncated_normal(key, shape, dtype, lower, upper):
    root = np.array(np.sqrt(2), dtype)[()]
    fixed = type(lower) in (int, float) and type(upper) in (int, float)
    if fixed and args.concrete_words(key) is not None:
        bounds: Any = lower, upper  # Python numbers, which can be hashed
        low, high, least, most = _truncation(*bounds, dtype)
        u = uniform_between(key, shape, dtype, low, high)
        x = special.erf_inv(np, np.asarray(u))
        x *= root
        return new_array(np.minimum(np.maximum(x, least), most))
    lower, upper = convert(lower, dtype), convert(upper, dtype)
    # XLA divides arrays by a scalar through its reciprocal; the last bit of the bounds matters,
    # since u is a small difference where the result is near zero.
    low, high = (args.erf(x * (1 / root) if x.ndim else x / root) for x in (lower, upper))
    u = uniform_between(key, shape, dtype, low, high)
    # Rounding may give the bounds themselves, which are outside the open interval.
    least = lax.nextafter(lax.stop_gradient(lower), np.array(np.inf, dtype))
    most = lax.nextafter(lax.stop_gradient(upper), np.array(-np.inf, dtype))
    return jnp.clip(lax.erf_inv(u) * root, least, most)


@functools.lru_cache(maxsize=256)
def _truncation(lower, upper, dtype):
    """`erf(bound / sqrt(2))` for both bounds, and the smallest and largest float between them."""
    root, infinity = np.array(np.sqrt(2), dtype), np.array(np.inf, dtype)
    with np.errstate(all="ignore"):
        lower, upper = np.array(lower, dtype), np.array(upper, dtype)
        low, high = (special.erf_by_element(np, np.asarray(x / root)) for x in (lower, upper))
        return low, high, np.nextafter(lower, infinity), np.nextafter(upper, -infinity)


UNIT_SCALE = np.float32(1)


@args.placed
def lognormal(
    key: Array, sigma: ArrayLike = UNIT_SCALE, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw numbers whose logarithms are normally distributed with mean 0.

    Args:
        key: random key; do not use it again.
        sigma: standard deviation of the logarithm, 1 by default.
        shape: shape of the result, to which `sigma` must broadcast; None for the shape of `sigma`.
        dtype: floating-point or complex dtype; None for float32 (float64 if 64-bit types are
            enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype: `exp(sigma * x)` for standard normal `x`.

    >>> toile.random.lognormal(key(0), 0.5, (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling_with("lognormal", key, shape, dtype, sigma,
                                           allow_complex=True)
    return args.exp(standard_normal(key, shape, dtype) * convert(sigma, dtype))


@args.placed
def multivariate_normal(
    key: Array, mean: ArrayLike, cov: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, method: Literal["cholesky", "svd", "eigh"] = "cholesky", *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw vectors from normal distributions with given means and covariances.

    Args:
        key: random key; do not use it again.
        mean: means, of shape (..., n).
        cov: covariance matrices, of shape (..., n, n), which must be symmetric and positive
            semidefinite; this is not checked.
        shape: shape of the result without its last axis, to which the leading axes of `mean` and
            `cov` must broadcast; None for the shape that they broadcast to.
        dtype: floating-point dtype of the standard normal numbers that are drawn first; None for
            the dtype of `mean` and `cov`.
        method: how `cov` is factored. "cholesky" is the fastest, but the result is NaN if `cov` is
            not positive definite. "svd" and "eigh" also work for singular matrices.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of shape `(*shape, n)`.

    >>> mean = jnp.array([1.0, 2.0])
    >>> cov = jnp.array([[1.0, 0.5], [0.5, 2.0]])
    >>> toile.random.multivariate_normal(key(0), mean, cov, (5,)).shape
    (5, 2)
    """
    key = args.one_key("multivariate_normal", key)
    mean, cov = args.inexact(mean, cov)
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}" + here())
    dtype = mean.dtype if dtype is None else args.float_dtype("multivariate_normal", dtype)
    if shape is not None:
        shape = args.canonical_shape(shape)
    if mean.ndim < 1:
        raise ValueError(
            f"multivariate_normal requires mean.ndim >= 1, got mean.ndim == {mean.ndim}{here()}")
    if cov.ndim < 2:
        raise ValueError("multivariate_normal requires cov.ndim >= 2, got cov.ndim == "
                         f"{cov.ndim}{here()}")
    n = mean.shape[-1]
    if cov.shape[-2:] != (n, n):
        raise ValueError(
            f"multivariate_normal requires cov.shape == (..., n, n) for n={n}, but got "
            f"cov.shape == {cov.shape}.{here()}")
    if shape is None:
        shape = lax.broadcast_shapes(mean.shape[:-1], cov.shape[:-2])
    else:
        args.check_shape("normal", shape, mean.shape[:-1], cov.shape[:-2])
    noise = standard_normal(key, shape + (n,), dtype)
    spread = jnp.einsum("...ij,...j->...i", _square_root(cov, method), noise)
    return at_rank(mean, spread.ndim) + spread


def _square_root(cov, method):
    """A factor F with F Fᵀ = cov."""
    if method == "svd":
        u, s, _ = jnp.linalg.svd(cov)
        return u * jnp.sqrt(s[..., None, :])
    if method == "eigh":
        w, v = jnp.linalg.eigh(cov)
        return v * jnp.sqrt(w[..., None, :])
    return jnp.linalg.cholesky(cov)


@args.placed
def maxwell(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the Maxwell distribution with scale 1.

    This is the distribution of the length of a vector of three standard normal numbers. The density
    is `sqrt(2 / pi) * x**2 * exp(-x**2 / 2)` for `x >= 0`.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.maxwell(key(0), (3,)).shape
    (3,)
    """
    return _maxwell(*args.sampling("maxwell", key, shape, dtype))


def _maxwell(key, shape, dtype):
    return jnp.linalg.norm(standard_normal(key, (*shape, 3), dtype), axis=-1)


@args.placed
def rademacher(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw -1 or 1, each with probability 1/2.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: dtype of the result; None for int32 (int64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.rademacher(key(0), (5,))
    Array([-1, -1,  1,  1, -1], dtype=int32)
    """
    return signs(*args.sampling("rademacher", key, shape, dtype, default=int))


def signs(key, shape, dtype):
    """Random signs, -1 or 1, from a typed key."""
    heads = unit(key, shape, dtypes.default_float_dtype()) < 0.5
    return (2 * heads.astype(dtype) - 1).astype(dtype)


def double_sided_maxwell(
    key: Array, loc: ArrayLike, scale: ArrayLike, shape: ShapeLike = (),
    dtype: DTypeLike | None = None
) -> Array:
    """Draw floats from the double-sided Maxwell distribution.

    A result is `loc` plus `scale` times a Maxwell-distributed number with a random sign. If `loc`
    is 0 and `scale` is 1, the density is `x**2 * exp(-x**2 / 2) / sqrt(2 * pi)`.

    Args:
        key: random key; do not use it again.
        loc: center of the distribution.
        scale: factor by which the numbers are multiplied.
        shape: first part of the result's shape. If `shape` is `()`, the shape that the parameters
            broadcast to is used instead, and therefore occurs twice in the result's shape, as in
            JAX.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).

    Returns:
        An array whose shape is `shape` followed by the shape that the parameters broadcast to.

    >>> toile.random.double_sided_maxwell(key(0), jnp.zeros(2), 1.0, (3,)).shape
    (3, 2)
    """
    key, shape, dtype = args.sampling("double_sided_maxwell", key, shape, dtype)
    parameters = lax.broadcast_shapes(np.shape(loc), np.shape(scale))
    shape = (shape or parameters) + parameters
    length_key, sign_key = args.split_key(key)
    x = signs(sign_key, shape, dtype) * _maxwell(length_key, shape, dtype)
    return x * scale + loc


@args.placed
def rayleigh(
    key: Array, scale: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
    *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the Rayleigh distribution.

    This is the distribution of `scale` times the length of a vector of two standard normal numbers.
    The density is `x / scale**2 * exp(-x**2 / (2 * scale**2))` for `x >= 0`.

    Args:
        key: random key; do not use it again.
        scale: positive factor by which the numbers are multiplied.
        shape: shape of the result, to which `scale` must broadcast; None for the shape of `scale`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.rayleigh(key(0), 2.0, (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling_with("rayleigh", key, shape, dtype, scale)
    log_u = args.log(unit(key, shape, dtype))
    return args.spread(scale, shape, dtype) * lax.sqrt(log_u * dtype.type(-2))


@args.placed
def wald(
    key: Array, mean: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the Wald distribution (inverse Gaussian distribution) with scale 1.

    The density is `exp(-(x - mean)**2 / (2 * mean**2 * x)) / sqrt(2 * pi * x**3)` for `x > 0`.

    Args:
        key: random key; do not use it again.
        mean: positive mean of the distribution.
        shape: shape of the result, to which `mean` must broadcast; None for the shape of `mean`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.wald(key(0), jnp.array([0.5, 2.0]), (3, 2)).shape
    (3, 2)
    """
    key, shape, dtype = args.sampling_with("wald", key, shape, dtype, mean)
    normal_key, uniform_key = args.split_key(key)
    mean = args.spread(mean, shape, dtype)
    v = standard_normal(normal_key, shape, dtype)
    z = unit(uniform_key, shape, dtype)
    y = v * v
    mean_squared = mean * mean
    # The smaller root of the quadratic that v² satisfies; the other is mean² / x.
    root = lax.sqrt(4 * mean * y + mean_squared * (y * y))
    x = mean + mean_squared * y / 2 - mean / 2 * root
    return jnp.where(z <= mean / (mean + x), x, mean_squared / x)


@args.placed
def orthogonal(
    key: Array, n: int, shape: ShapeLike = (), dtype: DTypeLike | None = None,
    m: int | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw matrices uniformly from the orthogonal group (the unitary group for complex dtypes).

    Args:
        key: random key; do not use it again.
        n: number of rows.
        shape: shape of the array of matrices; `()` for a single matrix.
        dtype: floating-point or complex dtype; None for float32 (float64 if 64-bit types are
            enabled).
        m: number of columns; None for `n`.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of shape `(*shape, n, m)`. Its matrices have orthonormal columns, or orthonormal
        rows if there are fewer rows than columns.

    >>> q = toile.random.orthogonal(key(0), 3, m=2)
    >>> q.shape
    (3, 2)
    >>> jnp.allclose(q.T @ q, jnp.eye(2), atol=1e-5)
    Array(True, dtype=bool)
    """
    shape = args.canonical_shape(shape)
    key = args.one_key("orthogonal", key)
    dtype = args.float_dtype("normal", dtype, allow_complex=True)
    n = args.concrete("orthogonal", operator.index, n)
    m = n if m is None else args.concrete("orthogonal", operator.index, m)
    z = standard_normal(key, (*shape, max(n, m), min(n, m)), dtype)
    q, r = jnp.linalg.qr(z)
    # Signs of R's diagonal make the factorization unique, hence Q uniform.
    x = q * jnp.expand_dims(jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1)), -2)
    return jnp.swapaxes(x, -1, -2) if n < m else x
