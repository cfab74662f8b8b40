"""Samplers that transform uniform numbers by an inverse distribution function."""

import math

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axis
from toile.random import _arguments as args
from toile.random._arguments import convert
from toile.random.bits import gumbel_mode, gumbel_noise, uniform_between, unit

__all__ = [
    "categorical", "cauchy", "exponential", "geometric", "gumbel", "laplace", "logistic", "pareto",
    "triangular", "weibull_min",
]


def exponential(key, shape=(), dtype=None, *, out_sharding=None):
    """Exponential numbers of mean 1."""
    return standard_exponential(*args.sampling("exponential", key, shape, dtype, out_sharding))


def standard_exponential(key, shape, dtype):
    """-log(1 - u), for a typed key or, elementwise, an array of keys."""
    return -lax.log1p(-unit(key, shape, dtype))


def gumbel(key, shape=(), dtype=None, mode=None, *, out_sharding=None):
    """Gumbel numbers; modes "high" and "highest" use more bits for a longer tail."""
    key, shape, dtype = args.sampling("gumbel", key, shape, dtype, out_sharding)
    return gumbel_noise(key, shape, dtype, gumbel_mode(mode))


def categorical(key, logits, axis=-1, shape=None, replace=True, mode=None, *, out_sharding=None):
    """Indices along `axis` drawn with probabilities softmax(logits).

    >>> categorical(key(0), jnp.zeros((2, 5))).shape
    (2,)
    """
    key = args.one_key("categorical", key)
    args.check_arraylike("categorical", logits)
    logits = jnp.asarray(logits)
    axis = canonicalize_axis(axis, logits.ndim) - logits.ndim
    batch = logits.shape[:axis] + (logits.shape[axis + 1:] if axis < -1 else ())
    if shape is None:
        shape = batch
    else:
        shape = args.canonical_shape(shape)
        args.check_shape("categorical", shape, batch)
    args.check_sharding("categorical", out_sharding)
    prefix = shape[:len(shape) - len(batch)]
    if replace:  # the largest of logits + Gumbel noise
        sizes = list(shape[len(prefix):])
        sizes.insert(axis % logits.ndim, logits.shape[axis])
        noise = gumbel_noise(key, (*prefix, *sizes), logits.dtype, gumbel_mode(mode))
        return jnp.argmax(noise + lax.expand_dims(logits, tuple(range(len(prefix)))), axis=axis)
    logits = logits + gumbel_noise(key, logits.shape, logits.dtype, gumbel_mode(mode))
    count = math.prod(prefix)
    if count > logits.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({count}) cannot exceed number of categories "
            f"({logits.shape[axis]}).{here()}")
    _, order = lax.top_k(jnp.moveaxis(logits, axis, -1), count)
    return jnp.moveaxis(order, -1, 0).reshape(shape)


def laplace(key, shape=(), dtype=None, *, out_sharding=None):
    """Laplace numbers, exponential to both sides of zero."""
    key, shape, dtype = args.sampling("laplace", key, shape, dtype, out_sharding)
    low = np.array(-1 + dtypes.finfo(dtype).epsneg, dtype)
    u = uniform_between(key, shape, dtype, low, 1.0)
    return lax.sign(u) * lax.log1p(-lax.abs(u))


def logistic(key, shape=(), dtype=None, *, out_sharding=None):
    """Logistic numbers log(u / (1 - u))."""
    key, shape, dtype = args.sampling("logistic", key, shape, dtype, out_sharding)
    x = uniform_between(key, shape, dtype, np.array(dtypes.finfo(dtype).tiny, dtype), 1.0)
    return args.log(x) - lax.log1p(-x)


def cauchy(key, shape=(), dtype=None, *, out_sharding=None):
    """Cauchy numbers tan(π (u - 1/2))."""
    key, shape, dtype = args.sampling("cauchy", key, shape, dtype, out_sharding)
    u = uniform_between(key, shape, dtype, np.array(dtypes.finfo(dtype).eps, dtype), 1.0)
    pi, half = (np.array(v, dtype)[()] for v in (np.pi, 0.5))
    return lax.tan((u - half) * pi)


def pareto(key, b, shape=None, dtype=None, *, out_sharding=None):
    """Pareto numbers of exponent b, from 1 upward."""
    key, shape, dtype = args.sampling_with("pareto", key, shape, dtype, out_sharding, b)
    e = standard_exponential(key, shape, dtype)
    return args.exp(args.divide(e, args.to_rank(convert(b, dtype), len(shape))))


def weibull_min(key, scale, concentration, shape=(), dtype=None):
    """Weibull numbers: scale times an exponential number to the power 1/concentration."""
    u = unit(*args.sampling("weibull_min", key, shape, dtype))
    return jnp.power(-jnp.log1p(-u), 1.0 / concentration) * scale


def geometric(key, p, shape=None, dtype=None, *, out_sharding=None):
    """The number of trials up to the first success of probability p."""
    key = args.one_key("geometric", key)
    dtype = args.any_dtype("geometric", dtype, int)
    if not dtypes.issubdtype(dtype, np.integer):
        raise ValueError(f"dtype argument to `geometric` must be an int dtype, got {dtype}{here()}")
    shape = args.joint_shape("geometric", shape, p)
    args.check_sharding("geometric", out_sharding)
    args.check_arraylike("geometric", p)
    (p,) = args.inexact(p)
    u = unit(key, shape, p.dtype)
    u = jnp.where(u == 0, p.dtype.type(1), u)
    log_failure = jnp.broadcast_to(lax.log1p(-p), shape)
    return (lax.floor(args.log(u) / log_failure) + 1).astype(dtype)


def triangular(key, left, mode, right, shape=None, dtype=None, *, out_sharding=None):
    """Numbers between left and right whose density is a triangle with its peak at mode."""
    key, shape, dtype = args.sampling_with("triangular", key, shape, dtype, out_sharding, left,
                                           mode, right)
    left, mode, right = (args.spread(v, shape, dtype) for v in (left, mode, right))
    u = unit(key, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return jnp.where(u < (mode - left) / (right - left), rising, falling)
