"""Samplers of counts: Poisson, binomial and multinomial numbers.

For small means, events are counted one by one; for large means, Hörmann's transformed rejection
method is used. Both methods process whole arrays with one key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, ShapeLike
from toile.parallel.specs import ShardingLike
from toile.random import _arguments as args
from toile.random._arguments import convert
from toile.random.bits import unit
from toile.random.generators import random_split

ROUNDS = 2**31 - 1  # more than any sample needs


@args.placed
def poisson(
    key: Array, lam: ArrayLike, shape: ShapeLike | None = None, dtype: DTypeLike | None = None, *,
    out_sharding: ShardingLike | None = None
) -> Array:
    """Draw integers from the Poisson distribution.

    The probability of `k` is `lam**k * exp(-lam) / k!` for `k = 0, 1, 2, ...`.

    Args:
        key: random key; do not use it again.
        lam: mean of the distribution. Where `lam` is negative or NaN, the result is -1.
        shape: shape of the result, to which `lam` must broadcast; None for the shape of `lam`.
        dtype: integer dtype; None for int32 (int64 if 64-bit types are enabled).
        out_sharding: how the result is divided among devices: a sharding, or a `PartitionSpec` for
            the mesh that was set with `toile.set_mesh`.

    Returns:
        An array of the given shape and dtype.

    Differences:
        JAX's function accepts only Threefry keys; toile accepts keys of all generators.

    >>> toile.random.poisson(key(0), 3.0, (4,))
    Array([0, 0, 4, 4], dtype=int32)
    >>> toile.random.poisson(key(0), jnp.array([0.5, 100.0]), (3, 2)).shape
    (3, 2)
    """
    key = args.one_key("poisson", key)
    dtype = args.any_dtype("poisson", dtype, int)
    shape = np.shape(lam) if shape is None else args.canonical_shape(shape)
    lam = convert(jnp.broadcast_to(lam, shape), np.float32)
    rounds = min(int(dtypes.iinfo(dtype).max), ROUNDS)  # a bound that is never reached
    rare = (lam != lam) | (lam < 10)
    few = _arrivals(key, jnp.where(rare, lam, np.float32(0)), shape, dtype, rounds)
    key, lam_or_large = args.reused(key), jnp.where(rare, np.float32(1e5), lam)
    many = _poisson_rejection(key, lam_or_large, shape, dtype, rounds)
    result = jnp.where(rare, few, many)
    return jnp.where(lam == 0, jnp.zeros_like(result), result)


def _arrivals(key, lam, shape, dtype, rounds):
    """Knuth's method: the number of uniform factors that keep the product above exp(-lam)."""

    def body(carry):
        i, k, key, log_product = carry
        key, subkey = args.split_key(key)
        k = jnp.where(log_product > -lam, k + dtype.type(1), k)
        return i + 1, k, key, log_product + jnp.log(unit(subkey, shape, np.dtype(np.float32)))

    def more(carry):
        return jnp.any(carry[3] > -lam) & (carry[0] < rounds)

    start = jnp.int32(0), jnp.zeros(shape, dtype), key, jnp.zeros(shape, np.float32)
    return lax.while_loop(more, body, start)[1] - dtype.type(1)


def _poisson_rejection(key, lam, shape, dtype, rounds):
    """Hörmann's PTRS for large lam."""
    log_lam = lax.log(lam)
    b = 0.931 + 2.53 * lax.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    sure = 0.9277 - 3.6224 / (b - 2)

    def propose(u, v):
        u = u - 0.5
        distance = 0.5 - jnp.abs(u)
        k = lax.floor((2 * a / distance + b) * u + lam + 0.43)
        s = lax.log(v * inverse_alpha / (a / (distance * distance) + b))
        log_mass = -lam + k * log_lam - lax.lgamma(k + 1)
        outside = (k < 0) | ((distance < 0.013) & (v > distance))
        return k, ((distance >= 0.07) & (v <= sure)) | (~outside & (s <= log_mass))

    return _first_accepted(key, propose, shape, lam.dtype, rounds).astype(dtype)


def _first_accepted(key, propose, shape, dtype, rounds):
    """Draw pairs of uniform numbers until `propose` has accepted a pair for every element.

    Until the loop ends, later accepted proposals replace the number of an accepted element."""

    def body(carry):
        i, result, accepted, key = carry
        key, u_key, v_key = args.split_key(key, 3)
        k, accept = propose(unit(u_key, shape, dtype), unit(v_key, shape, dtype))
        return i + 1, jnp.where(accept, k, result), accepted | accept, key

    def more(carry):
        return jnp.any(~carry[2]) & (carry[0] < rounds)

    start = jnp.int32(0), jnp.full(shape, -1, dtype), jnp.zeros(shape, bool), key
    return lax.while_loop(more, body, start)[1]


def binomial(
    key: Array, n: ArrayLike, p: ArrayLike, shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None
) -> Array:
    """Draw the number of successes in `n` independent trials with success probability `p`.

    The probability of `k` successes is `n! / (k! * (n - k)!) * p**k * (1 - p)**(n - k)`. Where `n`
    is negative or `p` is outside [0, 1], the result is NaN.

    Args:
        key: random key; do not use it again.
        n: number of trials; a number that is not an integer is rounded down.
        p: probability of success.
        shape: shape of the result, to which `n` and `p` must broadcast; None for the shape that
            they broadcast to.
        dtype: floating-point dtype; None for float32 (float64 if 64-bit types are enabled).

    Returns:
        An array of whole numbers with a floating-point dtype.

    >>> toile.random.binomial(key(0), 10, 0.3, (4,))
    Array([2., 2., 1., 2.], dtype=float32)
    """
    key = args.one_key("binomial", key)
    args.check_arraylike("binomial", n, p)
    dtype = args.float_dtype("binomial", dtype)
    shape = args.joint_shape("binomial", shape, n, p)
    (chance,) = args.inexact(p)
    count = jnp.broadcast_to(convert(n, chance.dtype), shape)
    chance = jnp.broadcast_to(chance, shape)
    real = chance.dtype.type

    lower_half = chance < 0.5
    q = jnp.where(lower_half, chance, 1 - chance)
    bad_count, endless = (count != count) | (count < 0), jnp.isinf(count)
    bad_q = (q != q) | (q < 0)
    q_nan = q != q
    q = jnp.where(bad_q, real(0.01), q)
    rare = bad_count | (count * q <= 10)
    count = jnp.floor(count)

    few = _successes(key, jnp.where(rare, count, real(0)), q, shape).astype(dtype)
    many = _binomial_rejection(args.reused(key), jnp.where(rare, real(1e4), count),
                               jnp.where(rare, real(0.5), q), shape).astype(dtype)
    result = jnp.where(rare, few, many)
    invalid = bad_q | bad_count
    result = jnp.where(invalid, dtype.type(np.nan), result)
    result = jnp.where(endless & ~invalid, dtype.type(np.inf), result)
    keep = lower_half | bad_count | q_nan | endless
    return jnp.where(keep, result, count.astype(dtype) - result)


def _successes(key, count, p, shape):
    """The number of geometric waiting times that fit into `count` trials."""
    log_failure = jnp.log1p(-p)
    dtype = p.dtype

    def body(carry):
        i, number, total, key = carry
        subkey, key = args.split_key(key)
        number = jnp.where(total <= count, number + 1, number)
        wait = jnp.ceil(jnp.log(unit(subkey, shape, dtype)) / log_failure)
        return i + 1, number, total + wait, key

    def more(carry):
        return jnp.any(carry[2] <= count) & (carry[0] < ROUNDS)

    start = jnp.int32(0), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), key
    return lax.while_loop(more, body, start)[1] - 1


def _binomial_rejection(key, count, p, shape):
    """Hörmann's BTRS for count p > 10 and p <= 1/2."""
    deviation = jnp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    sure = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = jnp.floor((count + 1) * p)

    def propose(u, v):
        u = u - 0.5
        distance = 0.5 - jnp.abs(u)
        k = jnp.floor((2 * a / distance + b) * u + c)
        outside = (k < 0) | (k > count)
        v_log = jnp.log(v * alpha / (a / (distance * distance) + b))
        bound = (
            (mode + 0.5) * jnp.log((mode + 1) / (odds * (count - mode + 1)))
            + (count + 1) * jnp.log((count - mode + 1) / (count - k + 1))
            + (k + 0.5) * jnp.log(odds * (count - k + 1) / (k + 1))
            + _stirling_error(mode) + _stirling_error(count - mode)
            - _stirling_error(k) - _stirling_error(count - k))
        accept = ((distance >= 0.07) & (v <= sure)) | (~outside & (v_log <= bound))
        return k, accept

    return _first_accepted(key, propose, shape, p.dtype, ROUNDS)


_STIRLING_ERRORS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287)


def _stirling_error(k):
    """log k! minus Stirling's formula, from a table for k up to 9.

    Above 9, the series is evaluated at 9 to reproduce JAX's numbers. The error of the acceptance
    bound that uses it is less than 0.01."""
    table = jnp.asarray(np.array(_STIRLING_ERRORS, k.dtype))
    tabled = k <= 9
    k = jnp.clip(k, k.dtype.type(0), k.dtype.type(9))
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return jnp.where(tabled, table[jnp.floor(k).astype(np.int32)], series)


def multinomial(
    key: Array, n: ArrayLike, p: ArrayLike, *, shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None, unroll: int | bool = 1
) -> Array:
    """Draw the number of times that each outcome occurs in `n` independent trials.

    Args:
        key: random key; do not use it again.
        n: number of trials, which is broadcast to the shape of the result without its last axis.
        p: probabilities of the outcomes, along the last axis. They are divided by their sum.
        shape: shape of the result, whose last axis is the axis of outcomes; None for the shape of
            `p`.
        dtype: dtype of the counts; None for float32 (float64 if 64-bit types are enabled).
        unroll: number of outcomes that are processed in each iteration of the loop, as in
            `lax.scan`.

    Returns:
        An array of counts, which sum to `n` along the last axis.

    >>> counts = toile.random.multinomial(key(0), 10, jnp.array([0.2, 0.3, 0.5]), shape=(2, 3))
    >>> counts
    Array([[1., 1., 8.],
           [6., 1., 3.]], dtype=float32)
    >>> counts.sum(-1)
    Array([10., 10.], dtype=float32)
    """
    key = args.one_key("multinomial", key)
    args.check_arraylike("multinomial", n, p)
    trials, odds = args.inexact(n, p)
    shape = odds.shape if shape is None else shape
    trials = jnp.broadcast_to(trials, shape[:-1])
    odds = jnp.moveaxis(jnp.broadcast_to(odds, shape), -1, 0)
    remaining = lax.cumsum(odds, 0, reverse=True)
    ratios = odds / jnp.where(remaining == 0, odds.dtype.type(1), remaining)

    def step(left, xs):
        ratio, key = xs
        count = binomial(key, left, jnp.clip(ratio, 0, 1), dtype=left.dtype)
        return left - count, count

    keys = random_split(key, (ratios.shape[0],))
    _, counts = lax.scan(step, trials, (ratios, keys), unroll=unroll)
    return jnp.moveaxis(counts, 0, -1).astype(dtypes.default_float_dtype() if dtype is None
                                              else dtype)
