"""Gamma numbers and the samplers built on them.

Marsaglia and Tsang's rejection method runs for all elements simultaneously. Each element has its
own key, so the number drawn for an element does not depend on how many rounds the other elements
need. Samples can be differentiated with respect to the shape parameter by implicit
reparametrization.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import custom_jvp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.source import here
from toile.parallel.specs import ShardingLike
from toile.random import _arguments as args
from toile.random._arguments import convert
from toile.random.bits import unit
from toile.random.generators import random_split
from toile.random.samplers_inverse import standard_exponential
from toile.random.samplers_normal import signs, standard_normal


@args.placed
def gamma(
    key: Array, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the gamma distribution with scale 1.

    The density is `x**(a - 1) * exp(-x) / Γ(a)` for `x > 0`. For another scale, multiply the result
    by that scale. The result can be differentiated with respect to `a`.

    Args:
        key: random key; do not use it again.
        a: positive shape parameter of the distribution.
        shape: shape of the result, to which `a` must broadcast; None for the shape of `a`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.gamma(key(0), 2.0, (3,)).shape
    (3,)
    >>> toile.random.gamma(key(0), jnp.array([0.5, 2.0, 9.0])).shape
    (3,)
    """
    return _gamma(args.one_key("gamma", key), a, shape, args.float_dtype("gamma", dtype), False)


@args.placed
def loggamma(
    key: Array, a: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw logarithms of gamma-distributed numbers.

    For small `a`, gamma-distributed numbers may underflow to 0, but their logarithms remain finite.

    Args:
        key: random key; do not use it again.
        a: positive shape parameter of the distribution.
        shape: shape of the result, to which `a` must broadcast; None for the shape of `a`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.gamma(key(0), 1e-3, (4,)) > 0
    Array([False,  True, False, False], dtype=bool)
    >>> toile.random.loggamma(key(0), 1e-3, (4,)).shape
    (4,)
    """
    return _gamma(args.one_key("loggamma", key), a, shape, args.float_dtype("gamma", dtype), True)


def _gamma(key, a, shape, dtype, log_space):
    shape = args.joint_shape("gamma", shape, a)
    a = args.spread(a, shape, dtype)
    return _log_gamma_sample(key, a, False) if log_space else _gamma_sample(key, a)


@custom_jvp
def _gamma_sample(key, a):
    cube, d, large, boost_keys = _scaled_cube(key, a)
    one = a.dtype.type(1)
    u = one - unit(boost_keys, (), a.dtype)
    return d * cube * jnp.where(large, one, lax.pow(u, one / a))


@partial(custom_jvp, nondiff_argnums=(2,))
def _log_gamma_sample(key, a, joined):
    """log d + log v³ + log u / a; `joined` rounds like a library that XLA uses for these sums."""
    cube, d, large, boost_keys = _scaled_cube(key, a)
    zero, one = a.dtype.type(0), a.dtype.type(1)
    log_u = -standard_exponential(boost_keys, (), a.dtype)
    boost = jnp.where(large | (log_u == 0), zero, log_u * (one / a))
    if not joined:
        return args.log(d) + args.log(cube) + boost
    d, cube, boost = (convert(x, _wide(a.dtype)) for x in (d, cube, boost))
    return convert(args.log_by_ratio(d) + args.log_by_ratio(cube) + boost, a.dtype)


def _wide(dtype):
    """float32 for the 16-bit types, else `dtype`."""
    return np.dtype(np.float32) if dtype.itemsize < 4 else dtype


@_gamma_sample.defjvp
def _gamma_sample_jvp(primals, tangents):
    sample = _gamma_sample(*primals)
    return sample, tangents[1] * lax.random_gamma_grad(primals[1], sample)


@_log_gamma_sample.defjvp
def _log_gamma_sample_jvp(joined, primals, tangents):
    log_sample = _log_gamma_sample(*primals, joined)
    sample = lax.exp(log_sample)
    tiny = np.array(dtypes.finfo(sample.dtype).tiny, sample.dtype)[()]
    sample = jnp.where(sample == 0, tiny, sample)  # d log x = dx / x, and exp may underflow
    return log_sample, tangents[1] * (lax.random_gamma_grad(primals[1], sample) / sample)


class _RandomGamma:
    """A substitute for JAX's primitive of this name; it has `bind(key, a, log_space=...)`."""

    name = "random_gamma"

    def bind(self, key, a, *, log_space):
        """Gamma numbers, one for each element of `a`."""
        return _log_gamma_sample(key, a, False) if log_space else _gamma_sample(key, a)

    def __repr__(self):
        return self.name


random_gamma_p = _RandomGamma()


def _scaled_cube(key, a):
    """v³ and d such that d v³ is a sample of Gamma(a), whether a >= 1, and keys for a < 1.

    For a < 1, d v³ is a sample of Gamma(a + 1); multiplied by u ** (1 / a), with uniform u from
    these keys, it becomes a sample of Gamma(a)."""
    one, third = (np.array(v, a.dtype)[()] for v in (1.0, 1.0 / 3.0))
    keys = random_split(key, a.shape[key.ndim:])
    large = a >= one
    d = jnp.where(large, a, a + one) - third
    keys, boost_keys = args.split_key(keys)
    return _accepted_cube(keys, _slope(d), d), d, large, boost_keys


def _slope(d):
    """1 / sqrt(9 d)."""
    third = np.array(1.0 / 3.0, d.dtype)[()]
    if d.dtype == dtypes.bfloat16:  # XLA rounds the root and the product, not the reciprocal
        wide = np.float32
        return convert(wide(third) * (wide(1) / convert(jnp.sqrt(d), wide)), d.dtype)
    return third * args.rsqrt(d)


def _accepted_cube(keys, c, d):
    """v³ with v = 1 + c x for normal x, accepted so that d v³ is Gamma(d + 1/3)."""
    dtype, step = c.dtype, args.stepwise
    one, half, squeeze = (np.array(v, dtype)[()] for v in (1, 0.5, 0.0331))

    def rejected(x2, cube, u):
        quick = u >= step(one - step(squeeze * step(x2 * x2)))
        slack = step(step(one - cube) + step(lax.log(cube)))
        return quick & (step(lax.log(u)) >= step(step(x2 * half) + step(d * slack)))

    def body(carry):
        keys, x2, cube, u = carry
        again = rejected(x2, cube, u)
        new_keys, x_keys, u_keys = args.split_key(keys, 3)
        x, v = _positive(x_keys, c)
        return (args.renewed_where(again, new_keys, keys), jnp.where(again, step(x * x), x2),
                jnp.where(again, step(step(v * v) * v), cube),
                jnp.where(again, unit(u_keys, (), dtype), u))

    like = jnp.zeros_like(c)
    start = keys, like, like + one, like + dtype.type(2)  # rejected, unless d is nan
    return lax.while_loop(lambda carry: jnp.any(rejected(*carry[1:])), body, start)[2]


def _positive(keys, c):
    """Normal x and v = 1 + c x, drawn again where v is not positive."""
    dtype = c.dtype
    zero, one = dtype.type(0), dtype.type(1)

    def body(carry):
        keys, x, v = carry
        again = v <= zero
        new_keys, x_keys = args.split_key(keys)
        new_x = standard_normal(x_keys, (), dtype)
        new_v = args.fused(new_x, c, jnp.full_like(c, one))
        return (args.renewed_where(again, new_keys, keys), jnp.where(again, new_x, x),
                jnp.where(again, new_v, v))

    start = keys, jnp.zeros_like(c), jnp.full_like(c, -1)
    return lax.while_loop(lambda carry: jnp.any(carry[2] <= zero), body, start)[1:]


@args.placed
def beta(
    key: Array, a: ArrayLike, b: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the beta distribution.

    The density is proportional to `x**(a - 1) * (1 - x)**(b - 1)` for `0 < x < 1`.

    Args:
        key: random key; do not use it again.
        a, b: positive parameters of the distribution.
        shape: shape of the result, to which `a` and `b` must broadcast; None for the shape that
            they broadcast to.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.beta(key(0), jnp.array([1.0, 2.0, 5.0]), 3.0).shape
    (3,)
    """
    key, shape, dtype = args.sampling_with("beta", key, shape, dtype, a, b)
    key_a, key_b = args.split_key(key)
    log_x = _gamma(key_a, a, shape, dtype, True)
    log_y = _gamma(key_b, b, shape, dtype, True)
    largest = lax.max(log_x, log_y)
    x, y = args.exp(log_x - largest), args.exp(log_y - largest)
    return x / (x + y)


@args.placed
def dirichlet(
    key: Array, alpha: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None,
    *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw probability vectors from the Dirichlet distribution.

    The density at a vector `x` of positive numbers that sum to 1 is proportional to the product of
    all `x[i]**(alpha[i] - 1)`.

    Args:
        key: random key; do not use it again.
        alpha: positive concentrations of the outcomes, along the last axis.
        shape: shape of the result without its last axis, to which `alpha.shape[:-1]` must
            broadcast; None for `alpha.shape[:-1]`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of shape `(*shape, alpha.shape[-1])`, whose vectors along the last axis sum to 1.

    >>> x = toile.random.dirichlet(key(0), jnp.array([1.0, 2.0, 5.0]), (4,))
    >>> x.shape
    (4, 3)
    >>> jnp.allclose(x.sum(-1), 1)
    Array(True, dtype=bool)
    """
    key = args.one_key("dirichlet", key)
    dtype = args.float_dtype("dirichlet", dtype)
    if np.ndim(alpha) < 1:
        raise ValueError("dirichlet requires alpha.ndim >= 1, got alpha.ndim == "
                         f"{np.ndim(alpha)}{here()}")
    batch, n = np.shape(alpha)[:-1], np.shape(alpha)[-1:]
    shape = batch if shape is None else args.canonical_shape(shape)
    args.check_shape("dirichlet", shape, batch)
    alpha = args.spread(alpha, shape + n, dtype)
    joined = _joins_softmax(alpha)
    log_x = _log_gamma_sample(key, alpha, joined)
    if joined:
        log_x = convert(log_x, _wide(dtype))
    top = lax.stop_gradient(jnp.max(log_x, axis=-1, keepdims=True, initial=-np.inf))
    x = args.exp(log_x - top)
    return convert(args.divide(x, jnp.sum(x, axis=-1, keepdims=True)), dtype)


def _joins_softmax(alpha):
    """Whether XLA's CPU compiler passes log-samples and their softmax to YNNPACK as one unit.

    It does so for 4096 elements or more. For bfloat16, the maxima must be converted, and there must
    be 4096 maxima. This matters because exp(log x - max) magnifies differences in the last bits of
    the logarithms.
    """
    elements = math.prod(alpha.shape[:-1]) if alpha.dtype == dtypes.bfloat16 else alpha.size
    return alpha.shape[-1] > 1 and elements >= 4096 and alpha.dtype != np.float16


@args.placed
def chisquare(
    key: Array, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the chi-square distribution.

    If `df` is an integer, this is the distribution of the sum of `df` squared standard normal
    numbers. The density is proportional to `x**(df / 2 - 1) * exp(-x / 2)` for `x > 0`.

    Args:
        key: random key; do not use it again.
        df: degrees of freedom, a positive number, which need not be an integer.
        shape: shape of the result, to which `df` must broadcast; None for the shape of `df`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.chisquare(key(0), 3, (2, 4)).shape
    (2, 4)
    """
    key, shape, dtype = args.sampling_with("chisquare", key, shape, dtype, df)
    return _chisquare(key, convert(df, dtype), shape, dtype)


def _chisquare(key, df, shape, dtype):
    two = dtype.type(2)
    return args.exp(_gamma(key, df / two, shape, dtype, True)) * two


@args.placed
def f(
    key: Array, dfnum: ArrayLike, dfden: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the F distribution.

    This is the distribution of the ratio of two independent chi-square variables, each divided by
    its degrees of freedom.

    Args:
        key: random key; do not use it again.
        dfnum: degrees of freedom of the numerator, a positive number.
        dfden: degrees of freedom of the denominator, a positive number.
        shape: shape of the result, to which `dfnum` and `dfden` must broadcast; None for the shape
            that they broadcast to.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.f(key(0), 3, 5, (2, 4)).shape
    (2, 4)
    """
    key, shape, dtype = args.sampling_with("f", key, shape, dtype, dfnum, dfden)
    dfnum, dfden = (args.to_rank(convert(v, dtype), len(shape)) for v in (dfnum, dfden))
    below_key, above_key = args.split_key(key)
    above = args.divide(_chisquare(above_key, dfnum, shape, dtype), dfnum)
    return above / args.divide(_chisquare(below_key, dfden, shape, dtype), dfden)


@args.placed
def t(
    key: Array, df: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from Student's t distribution.

    The density is proportional to `(1 + x**2 / df)**(-(df + 1) / 2)`.

    Args:
        key: random key; do not use it again.
        df: degrees of freedom, a positive number, which need not be an integer.
        shape: shape of the result, to which `df` must broadcast; None for the shape of `df`.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.t(key(0), jnp.array([1.0, 30.0]), (5, 2)).shape
    (5, 2)
    """
    key, shape, dtype = args.sampling_with("t", key, shape, dtype, df)
    half = args.to_rank(convert(df, dtype) / dtype.type(2), len(shape))
    normal_key, gamma_key = args.split_key(key)
    n = standard_normal(normal_key, shape, dtype)
    return n * jnp.sqrt(half / _gamma(gamma_key, half, shape, dtype, False))


@args.placed
def generalized_normal(
    key: Array, p: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the generalized normal distribution.

    The density is proportional to `exp(-|x|**p)`.

    Args:
        key: random key; do not use it again.
        p: positive exponent; its shape must broadcast to `shape`.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.generalized_normal(key(0), 4.0, (3,)).shape
    (3,)
    """
    key, shape, dtype = args.sampling("generalized_normal", key, shape, dtype,
                                      default=float)
    return _generalized_normal(key, p, shape, dtype)


def _generalized_normal(key, p, shape, dtype):
    gamma_key, sign_key = args.split_key(key)
    size = _gamma(gamma_key, 1 / p, shape, dtype, False)
    return signs(sign_key, shape, dtype) * size ** (1 / p)


@args.placed
def ball(
    key: Array, d: int, p: ArrayLike = 2, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw points uniformly from the unit ball of the `p`-norm.

    The ball consists of the points `x` for which `sum(|x[i]|**p) <= 1`.

    Args:
        key: random key; do not use it again.
        d: number of dimensions.
        p: exponent of the norm, a positive number.
        shape: shape of the array of points; `()` for a single point.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of shape `(*shape, d)`.

    >>> x = toile.random.ball(key(0), 3, shape=(100,))
    >>> x.shape
    (100, 3)
    >>> (jnp.linalg.norm(x, axis=-1) <= 1).all()
    Array(True, dtype=bool)
    """
    key, shape, dtype = args.sampling("ball", key, shape, dtype, default=float)
    d = args.concrete("ball", int, d)
    p = jnp.asarray(p)
    point_key, length_key = args.split_key(key)
    x = _generalized_normal(point_key, p, (*shape, d), dtype)
    e = standard_exponential(length_key, shape, dtype)
    return args.divide(x, ((jnp.abs(x) ** p).sum(-1) + e)[..., None] ** (1 / p))
