"""Random bits from raw states: Philox and Threefry with the results of JAX's `rng_bit_generator`.

User code should call `toile.random`, whose keys of kind "rbg" are such states. May import the
engine, primitives, control, `_operands` and this package's shapes and elementwise functions.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toile.control.random_draws import Draw
from toile.engine import dtypes
from toile.engine.annotations import ArrayLike, DTypeLike, ShapeLike
from toile.engine.arrays import Array, DeviceArray
from toile.engine.avals import Aval
from toile.engine.conversion import wrap
from toile.engine.errors import shape_error
from toile.engine.program import trace_program
from toile.engine.source import here
from toile.engine.trace import state as tracing
from toile.lax import comparisons, elementwise, shapes
from toile.lax._operands import operand, operands, sizes, user_dtype
from toile.lax.conversion import bitcast_convert_type, convert_element_type
from toile.primitives.arrays.threefry import PARITY, ROTATIONS
from toile.primitives.random import random_bits, random_wrap

if TYPE_CHECKING:
    from toile.lax._operands import ShardingLike

__all__ = ["RandomAlgorithm", "rng_bit_generator", "rng_uniform"]


class RandomAlgorithm(enum.IntEnum):
    """The generators that `rng_bit_generator` can use; the default is Philox."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__}.{self.name}: {self.value}>"


_draws = itertools.count()


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: ShapeLike) -> Array:
    """Draw uniformly distributed numbers from a generator with a hidden state.

    Each call draws different numbers. Prefer `toile.random.uniform`, whose key makes results
    reproducible.

    Args:
        a: lower bound, included: a scalar of an integer or float dtype.
        b: upper bound, excluded: a scalar of the same dtype as `a`.
        shape: shape of the result.

    Returns:
        An array with the bounds' dtype.

    Differences:
        A compiled function returns the same numbers each time it is called: the numbers that were
        drawn when it was traced.

    >>> x = lax.rng_uniform(0.0, 1.0, (1000,))
    >>> bool((x >= 0).all() and (x < 1).all())
    True
    """
    a, b = operands("rng_uniform", (a, b))
    shape = sizes("rng_uniform", shape)
    if a.dtype != b.dtype or a.shape or b.shape or dtypes.kind(a.dtype) not in "iuf":
        raise shape_error("rng_uniform", "real scalars of equal dtypes", [a.aval, b.aval])
    seed = np.random.SeedSequence(0x70117E, spawn_key=(next(_draws),)).generate_state(2)
    key = random_wrap(DeviceArray(seed.astype(np.uint32)), "threefry2x32")
    bits = random_bits(key, 32, shape)
    fill = lambda x: shapes.broadcast_in_dim(x, shape, ())
    if dtypes.kind(a.dtype) != "f":
        span = convert_element_type(elementwise.sub(b, a), np.uint32)
        drawn = convert_element_type(elementwise.rem(bits, fill(span)), a.dtype)
        return elementwise.add(drawn, fill(a))
    # 23 random bits under the exponent of 1 make a float32 in [1, 2).
    shifted = comparisons.shift_right_logical(bits, _uint(9))
    unit = bitcast_convert_type(comparisons.bitwise_or(shifted, _uint(0x3F800000)), np.float32)
    unit = convert_element_type(elementwise.sub(unit, 1.0), a.dtype)
    return elementwise.add(elementwise.mul(unit, fill(elementwise.sub(b, a))), fill(a))


def _uint(value: int) -> Any:
    return DeviceArray(np.asarray(value, np.uint32))


def rng_bit_generator(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike = np.uint32,
                      algorithm: RandomAlgorithm | int = RandomAlgorithm.RNG_DEFAULT, *,
                      out_sharding: ShardingLike | None = None) -> tuple[Array, Array]:
    """Draw random bits from a state, and return the next state.

    Prefer `toile.random.bits`. Keys of kind "rbg" contain such states.

    Args:
        key: the state: a key of 64 bits and a counter of 64 bits, in a uint32 array of shape (4,)
            or a uint64 array of shape (2,).
        shape: shape of the array of bits.
        dtype: unsigned integer dtype of the bits.
        algorithm: `RandomAlgorithm.RNG_PHILOX`, which is the default, or `RNG_THREE_FRY`.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        A pair: the next state, with the shape and dtype of `key`, and an array of bits.

    >>> state = jnp.array([1, 2, 3, 4], dtype=jnp.uint32)
    >>> state, bits = lax.rng_bit_generator(state, (2,))
    >>> bits
    Array([ 512747620, 1298009047], dtype=uint32)
    >>> state
    Array([1, 2, 4, 4], dtype=uint32)
    """
    state = operand("rng_bit_generator", key)
    shape, new = sizes("rng_bit_generator", shape), user_dtype(dtype, "rng_bit_generator")
    if (state.shape, state.dtype.name) not in (((4,), "uint32"), ((2,), "uint64")):
        raise shape_error("rng_bit_generator", "a key uint32[4] or uint64[2]", [state.aval])
    if dtypes.kind(new) != "u":
        raise TypeError("rng_bit_generator: needed an unsigned integer dtype, got "
                        f"{dtypes.name_of(new)}{here()}")
    kind = RandomAlgorithm(algorithm)
    if tracing.trace is None:
        return drawn(state, shape, new, kind)
    op, consts = _call(Aval(state.shape, state.dtype), shape, new, kind)
    after, bits = op(*consts, state)
    return after, bits


@functools.lru_cache(512)
def _call(state: Aval, shape: tuple[int, ...], dtype: Any, kind: Any) -> tuple[Draw, list[Any]]:
    """The operation that draws, and its constants."""
    run = lambda x: list(drawn(x, shape, dtype, kind))
    program, consts = trace_program(run, [state], "rng_bit_generator")
    return Draw(program, "rng_bit_generator", rng_bit_generator, shape, (dtype, kind)), consts


def drawn(state: Any, shape: tuple[int, ...], new: Any, kind: Any) -> tuple[Any, Any]:
    """`rng_bit_generator` as plain operations, which vmap maps state by state."""
    words = state
    if state.dtype != np.uint32:
        words = shapes.reshape(bitcast_convert_type(state, np.uint32), (4,))
    k0, k1, low, high = shapes.unstack(words)
    wide = new.itemsize == 8
    draw = _threefry_bits if kind == RandomAlgorithm.RNG_THREE_FRY else _philox_bits
    bits, used = draw((k0, k1, low, high), shape, wide)
    after = shapes.stack([k0, k1, *_advanced(low, high, _uint(used))])
    if state.dtype != np.uint32:
        after = bitcast_convert_type(shapes.reshape(after, (2, 2)), state.dtype)
    return after, bitcast_convert_type(bits, new) if wide else convert_element_type(bits, new)


def _philox_bits(words: Any, shape: tuple[int, ...], wide: bool) -> tuple[Any, int]:
    """Bits in consecutive blocks of four words; a wide element consists of two words."""
    k0, k1, low, high = words
    full = (*shape, 2) if wide else shape
    size = math.prod(full)
    blocks = -(-size // 4)
    counter = _advanced(low, high, shapes.iota(np.uint32, blocks))
    keys = [shapes.broadcast_in_dim(k, (blocks,), ()) for k in (k0, k1)]
    rows = shapes.stack(philox4x32((k0, k1), [*counter, *keys]), 1)
    bits = shapes.slice_in_dim(shapes.reshape(rows, (4 * blocks,)), 0, size)
    return shapes.reshape(bits, full), blocks


def _threefry_bits(words: Any, shape: tuple[int, ...], wide: bool) -> tuple[Any, int]:
    """Bits in blocks of two words, neighbors along the first even axis or else the longest axis."""
    k0, k1, low, high = words
    if not shape:
        bits, blocks = _threefry_bits(words, (1,), wide)
        return shapes.squeeze(bits, (0,)), blocks
    even = [d for d, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else max(range(len(shape)), key=shape.__getitem__)
    half = shape if wide else (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    blocks = math.prod(half)
    counter = _advanced(low, high, shapes.iota(np.uint32, blocks))
    rows = [shapes.reshape(r, half) for r in threefry2x32((k0, k1), counter)]
    if wide:
        return shapes.stack(rows, len(shape)), blocks
    both = shapes.collapse(shapes.stack(rows, axis + 1), axis, axis + 2)
    return shapes.slice_in_dim(both, 0, shape[axis], 1, axis), blocks


def _advanced(low: Any, high: Any, step: Any) -> tuple[Any, Any]:
    """A 64-bit counter, as two words, advanced by a number of steps."""
    start = shapes.broadcast_in_dim(low, step.shape, ())
    moved = elementwise.add(start, step)
    carry = convert_element_type(comparisons.lt(moved, start), np.uint32)
    return moved, elementwise.add(shapes.broadcast_in_dim(high, step.shape, ()), carry)


# ----------------------------------------------------------------- hashes, of Salmon et al., 2011


class _Words(NamedTuple):
    """How words are added, multiplied and rotated."""

    add: Callable[[Any, Any], Any]
    xor: Callable[[Any, Any], Any]
    mul: Callable[[Any, Any], Any]
    mulhi: Callable[[Any, Any], Any]
    rotated: Callable[[Any, int], Any]  # to the left


def _rotated(x: Any, bits: int) -> Any:
    return comparisons.bitwise_or(comparisons.shift_left(x, _uint(bits)),
                                  comparisons.shift_right_logical(x, _uint(32 - bits)))


def _high_product(x: Any, y: Any) -> Any:
    return (np.multiply(x, y, dtype=np.uint64) >> np.uint64(32)).astype(np.uint32)


_TRACED = _Words(elementwise.add, comparisons.bitwise_xor, elementwise.mul, elementwise.mulhi,
                 _rotated)
_AT_ONCE = _Words(np.add, np.bitwise_xor, np.multiply, _high_product,
                  lambda x, bits: (x << np.uint32(bits)) | (x >> np.uint32(32 - bits)))


def _hash(rounds: Callable[[_Words, list[Any], list[Any]], list[Any]]) -> Callable[..., list[Any]]:
    """A hash function of key words and counter words, which are arrays of equal shapes or scalars.

    Words in host memory are hashed with NumPy, and all others operation by operation."""

    @functools.wraps(rounds)
    def hashed(keys: Sequence[Any], counter: Sequence[Any]) -> list[Any]:
        words = [*keys, *counter]
        count = len(keys)
        if tracing.trace is None and all(_on_host(w) for w in words):
            raw = [w._data if w.__class__ is DeviceArray else w for w in words]
            with np.errstate(over="ignore"):
                return [wrap(np.asarray(w)) for w in rounds(_AT_ONCE, raw[:count], raw[count:])]
        arrays = [w if isinstance(w, Array) else _uint(w) for w in words]
        return rounds(_TRACED, arrays[:count], arrays[count:])

    return hashed


def _on_host(word: Any) -> bool:
    return word.__class__ is np.uint32 or word.__class__ is DeviceArray


@_hash
def philox4x32(w: _Words, keys: list[Any], c: list[Any]) -> list[Any]:
    """Philox4x32, ten rounds: two key words, four counter words."""
    k0, k1 = keys
    m0, m1, w0, w1 = _constants(w, 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85)
    for _ in range(10):
        first = w.xor(w.xor(w.mulhi(c[2], m1), c[1]), k0)
        third = w.xor(w.xor(w.mulhi(c[0], m0), c[3]), k1)
        c = [first, w.mul(c[2], m1), third, w.mul(c[0], m0)]
        k0, k1 = w.add(k0, w0), w.add(k1, w1)
    return c


@_hash
def philox2x32(w: _Words, keys: list[Any], counter: list[Any]) -> list[Any]:
    """Philox2x32, ten rounds: one key word, two counter words."""
    (key,), (x, y) = keys, counter
    m, step = _constants(w, 0xD256D193, 0x9E3779B9)
    for _ in range(10):
        x, y = w.xor(w.xor(w.mulhi(x, m), y), key), w.mul(x, m)
        key = w.add(key, step)
    return [x, y]


_ROTATIONS_4X32 = ((10, 26), (11, 21), (13, 27), (23, 5), (6, 20), (17, 11), (25, 10), (18, 20))


@_hash
def threefry4x32(w: _Words, keys: list[Any], counter: list[Any]) -> list[Any]:
    """Threefry4x32, twenty rounds: four key words, four counter words."""
    parity, *numbers = _constants(w, PARITY, 1, 2, 3, 4, 5)
    schedule = [*keys, functools.reduce(w.xor, [*keys, parity])]
    x = [w.add(c, k) for c, k in zip(counter, keys, strict=True)]
    for i in range(20):
        for pair, turn in enumerate(_ROTATIONS_4X32[i % 8]):
            a, b = 2 * pair, (2 * pair + (3 if i % 2 else 1)) % 4
            x[a] = w.add(x[a], x[b])
            x[b] = w.xor(x[a], w.rotated(x[b], turn))
        if i % 4 == 3:
            n = i // 4
            x = [w.add(word, schedule[(n + j + 1) % 5]) for j, word in enumerate(x)]
            x[3] = w.add(x[3], numbers[n])
    return x


@_hash
def threefry2x32(w: _Words, keys: list[Any], counter: list[Any]) -> list[Any]:
    """Threefry2x32, twenty rounds: two key words, two counter words."""
    (k0, k1), (x, y) = keys, counter
    parity, *numbers = _constants(w, PARITY, 1, 2, 3, 4, 5)
    schedule = [k0, k1, w.xor(w.xor(k0, k1), parity)]
    x, y = w.add(x, k0), w.add(y, k1)
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            x = w.add(x, y)
            y = w.xor(w.rotated(y, turn), x)
        x = w.add(x, schedule[(i + 1) % 3])
        y = w.add(w.add(y, schedule[(i + 2) % 3]), numbers[i])
    return [x, y]


def _constants(w: _Words, *values: int) -> list[Any]:
    return [np.uint32(v) if w is _AT_ONCE else _uint(v) for v in values]
