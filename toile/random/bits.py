"""Uniform numbers (raw bits, floats, integers and coin flips), and choices made with them.

All results equal those of JAX, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.engine.conversion import new_array
from toile.engine.fp_errors import ignore_errors, restore_errors
from toile.engine.source import here
from toile.numpy._axes import canonicalize_axis
from toile.parallel.specs import ShardingLike
from toile.primitives.arrays import threefry
from toile.primitives.arrays.special import fused_multiply_add
from toile.primitives.arrays.threefry import float_layout, unit_floats
from toile.random import _arguments as args
from toile.random._arguments import convert
from toile.random.generators import random_bits

UNSIGNED = {n: np.dtype(f"uint{n}") for n in (8, 16, 32, 64)}


@args.placed
def bits(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw unsigned integers from the uniform distribution over all values of their dtype.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: unsigned integer dtype; None for uint32 (uint64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.bits(key(0), (3,))
    Array([4070199207, 4202968722, 1427181096], dtype=uint32)
    >>> toile.random.bits(key(0), (4,), "uint8")
    Array([167, 146,  40,  53], dtype=uint8)
    """
    key = args.one_key("bits", key)
    drawn = (dtypes.default_uint_dtype() if dtype is None
             else dtypes.check_user_dtype_supported(dtype, "bits"))
    if not dtypes.issubdtype(drawn, np.unsignedinteger):
        raise ValueError("dtype argument to `bits` must be an unsigned int dtype, got "
                         f"{drawn}{here()}")
    return random_bits(key, drawn.itemsize * 8, args.canonical_shape(shape))


@args.placed
def uniform(
    key: Array, shape: ShapeLike = (), dtype: DTypeLike | None = None, minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw floats from the uniform distribution on the interval [minval, maxval).

    The bounds are broadcast to `shape`. If the interval is much shorter than the magnitude of its
    bounds, rounding can produce `maxval` itself. Where `maxval` is below `minval`, all results are
    `minval`.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).
        minval: lower bound, included; its shape must broadcast to `shape`.
        maxval: upper bound, excluded; its shape must broadcast to `shape`.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.uniform(key(0), (3,))
    Array([0.947667  , 0.9785799 , 0.33229148], dtype=float32)
    >>> low, high = jnp.array([0.0, 10.0]), jnp.array([1.0, 20.0])
    >>> toile.random.uniform(key(0), (3, 2), minval=low, maxval=high).shape
    (3, 2)
    """
    key, shape, dtype = args.sampling("uniform", key, shape, dtype)
    return uniform_between(key, shape, dtype, minval, maxval)


@args.compiled_if_many
def unit(key, shape, dtype):
    """Uniform floats in [0, 1) from a typed key, or from each key of an array."""
    words = args.concrete_words(key)
    if words is not None:
        return new_array(unit_floats(np, words, shape, dtype))
    width, drawn, shift, one = float_layout(dtype)
    words = random_bits(key, drawn, shape)
    if drawn != width:
        words = convert(words, UNSIGNED[width])
    words = lax.bitwise_or(lax.shift_right_logical(words, shift), one.view(UNSIGNED[width]))
    return lax.bitcast_convert_type(words, dtype) - one


@args.compiled_if_many
def uniform_between(key, shape, dtype, minval, maxval):
    """Uniform floats in [minval, maxval) from a typed key."""
    fixed = type(minval) in (float, int, np.ndarray) and type(maxval) in (float, int, np.ndarray)
    if not fixed or np.ndim(minval) or np.ndim(maxval):
        return _uniform_between_arrays(key, shape, dtype, minval, maxval)
    if minval == 0 and maxval == 1:
        return unit(key, shape, dtype)
    low, high = np.array(minval, dtype)[()], np.array(maxval, dtype)[()]
    with np.errstate(all="ignore"):
        span = high - low
    exact = math.frexp(float(span))[0] == 0.5  # a power of two: the product does not round
    words = args.concrete_words(key)
    if words is not None:
        floats = unit_floats(np, words, shape, dtype)
        apart = exact or (dtype == np.float16 and not args.float16_is_native())
        scaled = floats * span + low if apart else fused_multiply_add(np, floats, span, low)
        return new_array(np.maximum(low, scaled))
    floats = unit(key, shape, dtype)
    if exact:
        return lax.max(low, floats * span + low)
    return lax.max(low, args.fused(floats, jnp.asarray(span), jnp.asarray(low)))


def _uniform_between_arrays(key, shape, dtype, minval, maxval):
    minval = args.to_rank(convert(minval, dtype), len(shape))
    maxval = args.to_rank(convert(maxval, dtype), len(shape))
    floats = args.fused(unit(key, shape, dtype), args.stepwise(maxval - minval), minval)
    if floats.shape != shape and (shape or floats.size != 1):  # as in JAX, bounds may be (1,)
        raise ValueError(
            f"uniform: needed minval and maxval that broadcast to shape {shape}, got shapes "
            f"{minval.shape} and {maxval.shape}{here()}")
    return jnp.maximum(minval, floats)


@args.placed
def bernoulli(
    key: Array, p: ArrayLike = 0.5, shape: ShapeLike | None = None,
    mode: Literal["high", "low"] = "low", *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw booleans that are True with probability `p`.

    Args:
        key: random key; do not use it again.
        p: probability of True; a number or array with a floating-point dtype.
        shape: shape of the result, to which `p` must broadcast; None for the shape of `p`.
        mode: precision of the probabilities. "low" compares `p` with one uniform number of the same
            dtype, so that probabilities are accurate to about 1e-7 in float32. "high" uses twice as
            many random bits, which makes small probabilities more accurate.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        A boolean array.

    Raises:
        TypeError: `p` does not have a floating-point dtype.

    >>> toile.random.bernoulli(key(1), 0.5, (4,))
    Array([ True, False,  True,  True], dtype=bool)
    """
    if shape is not None:
        shape = args.canonical_shape(shape)
    if mode not in ("high", "low"):
        raise ValueError(f"got {mode=}, expected 'high' or 'low'{here()}")
    key = args.one_key("bernoulli", key)
    dtype = dtypes.dtype(p)
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError("bernoulli probability `p` must have a floating dtype, got "
                        f"{dtype}.{here()}")
    if shape is None:
        shape = np.shape(p)
    else:
        args.check_shape("bernoulli", shape, np.shape(p))
    p = np.array(p, dtype)[()] if type(p) is float else to_rank(convert(p, dtype), len(shape))
    if mode == "low":
        return unit(key, shape, dtype) < p
    coarse, fine = unit(key, (2, *shape), dtype)
    return fine * 2.0 ** -dtypes.finfo(dtype).nmant < p - coarse


to_rank = args.to_rank


@args.placed
def randint(
    key: Array, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike,
    dtype: DTypeLike | None = None, *, out_sharding: ShardingLike | None = None
) -> Array:
    """Draw integers from the uniform distribution on [minval, maxval).

    The bounds are broadcast to `shape` and clipped to the range of `dtype`. Where `maxval` is not
    above `minval`, the result is `minval`. If the number of possible values is not a power of two,
    the numbers are slightly biased. The bias is negligible unless the interval covers most of the
    dtype's range.

    Args:
        key: random key; do not use it again.
        shape: shape of the result; `()` for a single number.
        minval: lower bound, included; its shape must broadcast to `shape`.
        maxval: upper bound, excluded; its shape must broadcast to `shape`.
        dtype: integer dtype; None for int32 (int64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    >>> toile.random.randint(key(0), (5,), 0, 10)
    Array([9, 0, 2, 3, 1], dtype=int32)
    """
    key, shape, dtype = args.sampling("randint", key, shape, dtype, default=int)
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"randint only accepts integer dtypes, got {dtype} (use uniform for "
                        f"floats){here()}")
    info, drawn = dtypes.iinfo(dtype), dtype
    if info.bits < 32:  # narrow types are drawn in 32 bits, where the remainder is less biased
        drawn = np.dtype(np.int32)
        minval = _clipped(minval, int(info.min), int(info.max))
        maxval = _clipped(maxval, int(info.min), int(info.max) + 1)
    default = dtypes.iinfo(dtypes.default_int_dtype())
    if all(type(v) is int and default.min <= v <= default.max for v in (minval, maxval)):
        result = _randint_between(key, shape, minval, maxval, drawn)
    else:
        result = _randint_between_arrays(key, shape, minval, maxval, drawn)
    return result if drawn == dtype else result.astype(dtype)


def _clipped(x, low, high):
    if type(x) is int and -(2**31) <= x < 2**31:
        return min(max(x, low), high)
    return jnp.clip(jnp.asarray(x).astype(np.int32), low, high)


@args.compiled_if_many
def _randint_between(key, shape, minval, maxval, dtype):
    """`randint` between Python integers, where everything but the bits is known in advance."""
    info = dtypes.iinfo(dtype)
    width, low, top = info.bits, int(info.min), int(info.max)
    first, last = min(max(minval, low), top), min(max(maxval, low), top)
    span = 1 if last <= first else (last - first + (maxval > top)) % 2**width
    multiplier = span and (2 ** (width // 2) % span) ** 2 % 2**width % span
    unsigned = UNSIGNED[width].type
    words = args.concrete_words(key)
    if words is not None:
        numbers = (unsigned(n % 2**width) for n in (span, multiplier, first))
        return new_array(_offsets(words, width, shape, *numbers).astype(dtype))
    upper, lower = args.split_key(key)
    offset = random_bits(lower, width, shape)
    if span:  # 0 stands for 2**width: all bits are used
        offset = lax.rem(offset, unsigned(span)) if span > 1 else offset * unsigned(0)
    if multiplier:
        high = lax.rem(random_bits(upper, width, shape), unsigned(span))
        offset = lax.rem(high * unsigned(multiplier) + offset, unsigned(span))
    return convert(offset, dtype) + dtype.type(first)


def _offsets(words, width, shape, span, multiplier, first):
    """first + (random number mod span), on NumPy arrays; integers wrap around."""
    upper, lower = threefry.split(np, words, (2,))
    token = ignore_errors()
    try:
        offset = threefry.random_bits(np, lower, width, shape)
        if span:
            offset %= span
        if multiplier:
            high = threefry.random_bits(np, upper, width, shape)
            high %= span
            high *= multiplier
            offset += high
            offset %= span
        offset += first
        return offset
    finally:
        restore_errors(token)


def _randint_between_arrays(key, shape, minval, maxval, dtype):
    args.check_shape("randint", shape, np.shape(minval), np.shape(maxval))
    args.check_arraylike("randint", minval, maxval)
    minval, maxval = (jnp.asarray(v) for v in (minval, maxval))
    minval, maxval = (v if dtypes.issubdtype(v.dtype, np.integer) else v.astype(int)
                      for v in (minval, maxval))
    info = dtypes.iinfo(dtype)
    width = info.bits
    if width not in UNSIGNED:
        raise TypeError(f"randint: needed an 8-, 16-, 32- or 64-bit dtype, got {dtype}{here()}")
    top = min(int(info.max), int(dtypes.iinfo(maxval.dtype).max))
    beyond = maxval > maxval.dtype.type(top)  # maxval need not fit dtype: randint(…, 0, 256)
    minval, maxval = (to_rank(_clip_to(v, dtype), len(shape)) for v in (minval, maxval))
    beyond = to_rank(beyond, len(shape))

    unsigned = UNSIGNED[width].type
    one, zero = unsigned(1), unsigned(0)
    span = convert(maxval - minval, unsigned)
    span = jnp.where(maxval <= minval, one, span)  # an empty range gives minval
    span = jnp.where(beyond & (maxval > minval), span + one, span)
    full = span == zero  # wrapped around: every bit pattern is in range
    span = jnp.where(full, one, span)
    # The draw has 2 * width bits: (high 2**width + low) mod span, by modular arithmetic.
    multiplier = lax.rem(jnp.full_like(span, 2 ** (width // 2)), span)
    multiplier = lax.rem(multiplier * multiplier, span)
    upper, lower = args.split_key(key)
    high, low = random_bits(upper, width, shape), random_bits(lower, width, shape)
    span, multiplier, full = (jnp.broadcast_to(v, shape) for v in (span, multiplier, full))
    offset = lax.rem(lax.rem(high, span) * multiplier + lax.rem(low, span), span)
    return minval + convert(jnp.where(full, low, offset), dtype)


def _clip_to(x, dtype):
    """The integers `x`, clipped to the range of `dtype` and converted to it."""
    own, new = dtypes.iinfo(x.dtype), dtypes.iinfo(dtype)
    low, high = max(int(own.min), int(new.min)), min(int(own.max), int(new.max))
    return jnp.clip(x, x.dtype.type(low), x.dtype.type(high)).astype(dtype)


@args.placed
def permutation(
    key: Array, x: ArrayLike, axis: int = 0, independent: bool = False, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Shuffle the slices of an array, or the integers from 0 to `x - 1`.

    Args:
        key: random key; do not use it again.
        x: array to shuffle, or an integer `n` for `jnp.arange(n)`.
        axis: the axis along which to shuffle.
        independent: whether to shuffle each vector along `axis` independently. By default, whole
            slices are moved.
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array with the shape and dtype of `x`, or of shape `(n,)` for an integer `n`.

    Raises:
        TypeError: `x` is a scalar, but not an integer.

    >>> toile.random.permutation(key(1), 5)
    Array([3, 2, 0, 1, 4], dtype=int32)
    >>> toile.random.permutation(key(1), jnp.array([[1, 2], [3, 4], [5, 6]]))
    Array([[5, 6],
           [1, 2],
           [3, 4]], dtype=int32)
    """
    key = args.one_key("permutation", key)
    args.check_arraylike("permutation", x)
    axis = canonicalize_axis(axis, np.ndim(x) or 1)
    if not np.ndim(x):
        if not dtypes.issubdtype(dtypes.dtype(x), np.integer):
            raise TypeError("x must be an integer or at least 1-dimensional" + here())
        count = args.concrete("argument x of permutation", int, x)
        return _shuffled(key, jnp.arange(count), axis)
    array = x if isinstance(x, Array) else jnp.asarray(x)
    if independent or array.ndim == 1:
        return _shuffled(key, array, axis)
    order = _shuffled(key, jnp.arange(array.shape[axis]), 0)
    return jnp.take(array, order, axis)


def _shuffled(key, x, axis):
    """Sort by random 32-bit numbers, often enough that ties in all rounds are unlikely."""
    rounds = math.ceil(3 * np.log(max(1, x.size)) / np.log(2**32 - 1))
    for _ in range(rounds):
        key, subkey = args.split_key(key)
        _, x = lax.sort_key_val(random_bits(subkey, 32, x.shape), x, axis)
    return x


def choice(
    key: Array, a: ArrayLike, shape: Sequence[int] = (), replace: bool = True,
    p: ArrayLike | None = None, axis: int = 0,
    mode: Literal["highest", "high", "low"] | None = None
) -> Array:
    """Draw elements from an array, or integers from 0 to `a - 1`, with or without replacement.

    Args:
        key: random key; do not use it again.
        a: array from which slices along `axis` are chosen, or an integer `n` for `jnp.arange(n)`.
        shape: shape of the array of choices, as a tuple; `()` for a single choice.
        replace: whether an element can be chosen more than once.
        p: weights of the elements, a vector that need not sum to 1; None for equal probabilities.
        axis: axis of `a` along which elements are chosen.
        mode: precision of the Gumbel noise, as in `gumbel`. Noise is used only if weights are given
            and `replace` is False.

    Returns:
        If `a` is an array, an array with the dtype of `a`, whose shape is the shape of `a` with
        `axis` replaced by `shape`. If `a` is an integer, an array of integers with the shape
        `shape`. If `shape` contains a 0, the result is an empty array whose shape is just `shape`,
        even if `a` has other axes.

    Raises:
        TypeError: `shape` is a number.
        ValueError: there is nothing to choose from (`a` has size 0 along `axis`, or is an integer
            that is not positive) and `shape` contains no 0; `replace` is False and `shape` requests
            more elements than there are; `p` is not a vector with one weight per element; `axis` is
            out of range; or noise is used and `mode` is invalid.

    >>> toile.random.choice(key(0), jnp.array([10, 20, 30]), (4,))
    Array([20, 10, 30, 20], dtype=int32)
    >>> toile.random.choice(key(1), 5, (3,), replace=False)
    Array([3, 2, 0], dtype=int32)
    >>> toile.random.choice(key(0), jnp.ones((7, 2)), (3, 4)).shape
    (3, 4, 2)
    """
    key = args.one_key("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"shape argument of random.choice must be a sequence, got {shape}{here()}")
    args.check_arraylike("choice", a)
    array = jnp.asarray(a)
    if array.ndim:
        axis = canonicalize_axis(axis, array.ndim)
        population = array.shape[axis]
    else:
        population = args.concrete("choice", int, a)
    draws = math.prod(shape)
    if draws == 0:
        return jnp.zeros(shape, dtype=array.dtype)
    if population <= 0:
        raise ValueError("a must be greater than 0 unless no samples are taken" + here())
    if not replace and draws > population:
        raise ValueError(
            f"Cannot take a larger sample (size {draws}) than population (size {population}) "
            "when 'replace=False' (draw fewer, or with replace=True)" + here())
    if p is None and not replace:
        picked = permutation(key, array if array.ndim else population, axis)
        picked = picked[(slice(None),) * axis + (slice(draws),)]
    else:
        if p is None:
            order = randint(key, shape, 0, population)
        else:
            order = _weighted(key, population, shape, replace, p, mode)
        picked = jnp.take(array, order, axis) if array.ndim else order
    if not array.ndim:
        return picked.reshape(shape)
    return picked.reshape(array.shape[:axis] + tuple(shape) + array.shape[axis + 1:])


def _weighted(key, population, shape, replace, p, mode):
    """Indices drawn with the weights `p`."""
    args.check_arraylike("choice", p)
    (p,) = args.inexact(p)
    if p.shape != (population,):
        raise ValueError(
            "p must be None or a 1D vector with the same size as a.shape[axis]. p has shape "
            f"{p.shape} and a.shape[axis] is {population} (give one probability for each).{here()}")
    if replace:
        cumulative = jnp.cumsum(p)
        level = cumulative[-1] * (1 - unit(key, tuple(shape), cumulative.dtype))
        return jnp.searchsorted(cumulative, level).astype(int)
    # The largest of log p + Gumbel noise are a sample without replacement.
    noise = gumbel_noise(key, (population,), p.dtype, gumbel_mode(mode))
    return lax.top_k(noise + args.log(p), math.prod(shape))[1].astype(int)


def gumbel_mode(mode):
    """The mode of Gumbel sampling, after a check; None means "low"."""
    mode = "low" if mode is None else mode
    if mode not in ("highest", "high", "low"):
        raise ValueError(f"Must provide valid mode for gumbel got: {mode}{here()}")
    return mode


def gumbel_noise(key, shape, dtype, mode):
    """Gumbel numbers -log(-log u) from a typed key."""
    info = dtypes.finfo(dtype)
    if mode == "low":
        tiny = np.array(info.tiny, dtype)
        return -args.log(-args.log(uniform_between(key, shape, dtype, tiny, 1.0)))
    if mode == "highest" and dtype == np.float32:
        return _gumbel_64_bits(key, shape)
    high, low = unit(key, (2, *shape), dtype)
    scale, tiny = (np.array(v, dtype)[()] for v in (2.0**-info.nmant, info.tiny))
    x = jnp.where(high >= 0.5, high, high + scale * low + tiny)
    return -args.log(-jnp.log1p(-x))


def _gumbel_64_bits(key, shape):
    """float32 Gumbel numbers from 64-bit fixed-point uniforms."""
    words = random_bits(key, 32, (2, *shape))
    high, low = words[0], words[1]
    flipped_high, flipped_low = ~high, ~low
    carry = (flipped_low == np.uint32(2**32 - 1)).astype(np.uint32)
    flipped_high, flipped_low = flipped_high + carry, flipped_low + np.uint32(1)  # 1 - u
    below = high < np.uint32(2**31)
    x = _float_below_one(jnp.where(below, high, flipped_high), jnp.where(below, low, flipped_low))
    # log1p for u below one half, log above: each where it is accurate.
    return jnp.where(below, -args.log(-jnp.log1p(-x)), -args.log(-args.log(x)))


def _float_below_one(high, low):
    """The float32 of a 64-bit fixed-point number in (0, 1), truncated."""
    high_zeros, low_zeros = lax.clz(high), lax.clz(low)
    empty = high_zeros == 32
    mantissa = lax.bitwise_or(
        lax.shift_left(high, high_zeros),
        jnp.where(empty, lax.shift_left(low, low_zeros),
                  lax.shift_right_logical(low, np.uint32(32) - high_zeros)))
    mantissa = lax.shift_right_logical(mantissa, jnp.full_like(mantissa, 8))
    mantissa = lax.bitwise_and(mantissa, np.uint32((1 << 23) - 1))
    zeros = jnp.where(empty, low_zeros + np.uint32(32), high_zeros)
    exponent = lax.shift_left(np.uint32(126) - zeros, jnp.full_like(zeros, 23))
    exponent = lax.bitwise_and(exponent, np.uint32((1 << 30) - (1 << 22)))
    return lax.bitcast_convert_type(lax.bitwise_or(exponent, mantissa), np.float32)
