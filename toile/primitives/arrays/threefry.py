"""The Threefry-2x32 counter hash on raw NumPy or CuPy arrays, and the key operations based on it.

Everything takes `xp` (numpy or cupy) first and works on uint32 arrays; keys are raw words of
shape (..., 2). Counters follow the partitionable layout: element i of a result hashes the 64-bit
number i, split into a high and a low word, so each element depends on the key and its own index
only; the older layout (`jax_threefry_partitionable=False`) is at the end. A small number of blocks
is hashed as lanes of one big Python integer, where an operation costs tens of nanoseconds; larger
arrays are hashed in place, in cache-sized chunks of 32-bit words. Both agree bit for bit.
"""

import math
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from toile.engine.source import here

Array = Any  # numpy.ndarray or cupy.ndarray
Shape = tuple[int, ...]

WORD = 0xFFFFFFFF
PARITY = 0x1BD11BDA  # the key schedule's third word is k0 ^ k1 ^ PARITY
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # used in turn, four rounds each
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}

FEW = 192  # up to this many blocks, one big integer is faster than some hundred NumPy calls
CHUNK = 1 << 15  # three uint32 buffers of this length fit into the second-level cache

# Shift counts as 0-d arrays: a ufunc takes them without converting a Python number each time.
_SHIFTS = tuple(tuple((np.array(r, np.uint32), np.array(32 - r, np.uint32)) for r in rs)
                for rs in ROTATIONS)


def threefry2x32(xp: ModuleType, k0: Array, k1: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """Hash counter words (x0, x1) under key words (k0, k1); the four broadcast together."""
    if xp is not np:
        return _device_kernel(xp)(k0, k1, x0, x1)
    shape = np.broadcast_shapes(np.shape(k0), np.shape(k1), np.shape(x0), np.shape(x1))
    size = math.prod(shape)
    if size <= FEW:
        words = [_pack(np.broadcast_to(x, shape)) for x in (k0, k1, x0, x1)]
        y = _unpack(*_hash_lanes(size, *words), size)
        return y[0].reshape(shape), y[1].reshape(shape)
    y0, y1 = np.empty(shape, np.uint32), np.empty(shape, np.uint32)
    y0[...], y1[...] = x0, x1
    if np.ndim(k0) == 0 and np.ndim(k1) == 0:
        _hash_in_place(int(k0), int(k1), y0.reshape(-1), y1.reshape(-1))
    else:
        k0, k1 = (np.broadcast_to(k, shape).reshape(-1) for k in (k0, k1))
        _hash_in_place(k0, k1, y0.reshape(-1), y1.reshape(-1))
    return y0, y1


def random_bits(xp: ModuleType, keys: Array, bit_width: int, shape: Shape) -> Array:
    """Uniform unsigned integers of `bit_width` bits, `shape` of them for each key."""
    x0, x1 = _hash_counters(xp, keys, shape)
    if bit_width == 64:
        bits = x0.astype(np.uint64)
        bits <<= np.uint64(32)
        bits |= x1
        return bits
    x0 ^= x1  # in place, and an array also at rank 0
    return x0 if bit_width == 32 else x0.astype(UNSIGNED[bit_width])


def unit_floats(xp: ModuleType, keys: Array, shape: Shape, dtype: np.dtype) -> Array:
    """Uniform floats in [0, 1): random mantissa bits under the exponent of 1, less 1."""
    width, drawn, shift, one = float_layout(dtype)
    words = random_bits(xp, keys, drawn, shape).astype(UNSIGNED[width], copy=False)
    words >>= shift
    words |= one.view(UNSIGNED[width])
    floats = words.view(dtype)
    floats -= one
    return floats


@cache
def float_layout(dtype: np.dtype) -> tuple[int, int, Array, Array]:
    """Bits of a float, bits drawn for it, the right shift applied to them, and the number 1."""
    info = ml_dtypes.finfo(dtype)
    if info.bits not in UNSIGNED:
        raise TypeError(f"uniform: needed an 8-, 16-, 32- or 64-bit dtype, got {dtype}{here()}")
    drawn = 8 if info.nmant < 8 else info.bits
    unsigned = UNSIGNED[info.bits]
    return info.bits, drawn, unsigned(drawn - info.nmant), np.ones((), dtype)[()]


def split(xp: ModuleType, keys: Array, shape: Shape) -> Array:
    """New keys, `shape` of them for each key: raw words of shape (..., *shape, 2)."""
    if xp is np and keys.ndim == 1 and math.prod(shape) <= FEW:
        return np.ascontiguousarray(_hash_few(keys, math.prod(shape)).T).reshape(*shape, 2)
    return xp.stack(_hash_counters(xp, keys, shape), axis=-1)


def fold_in(xp: ModuleType, keys: Array, data: Array) -> Array:
    """Keys derived from `keys` and 32-bit words `data`; both broadcast over leading axes."""
    if xp is np and keys.ndim == 1 and np.ndim(data) == 0:
        k0, k1 = keys.tolist()
        return np.array(_hash_lanes(1, k0, k1, 0, int(data)), np.uint32)
    data = xp.asarray(data).astype(np.uint32, copy=False)
    high = xp.zeros((), np.uint32)
    return xp.stack(threefry2x32(xp, keys[..., 0], keys[..., 1], high, data), axis=-1)


def seed(xp: ModuleType, seeds: Array) -> Array:
    """Raw keys from integers: both words of 64-bit seeds, (0, seed mod 2**32) of narrower ones."""
    seeds = xp.asarray(seeds)
    out = xp.empty((*seeds.shape, 2), np.uint32)
    wide = seeds.astype(np.int64, copy=False).view(np.uint64)
    out[..., 0] = wide >> np.uint64(32) if seeds.dtype.itemsize == 8 else 0
    out[..., 1] = wide & np.uint64(WORD)
    return out


def _hash_counters(xp: ModuleType, keys: Array, shape: Shape) -> tuple[Array, Array]:
    """Both words of the hash of 0 … prod(shape)-1 under each key, of shape (..., *shape)."""
    size, batch = math.prod(shape), keys.shape[:-1]
    if xp is np and not batch:
        if size <= FEW:
            y = _hash_few(keys, size)
            return y[0].reshape(shape), y[1].reshape(shape)
        high, low = _counters(np, size)
        k0, k1 = keys.tolist()
        _hash_in_place(k0, k1, high, low)
        return high.reshape(shape), low.reshape(shape)
    high, low = _counters(xp, size)
    k0, k1 = keys[..., 0:1], keys[..., 1:2]
    if size == 1:  # one count for all keys: no axis to broadcast along
        k0, k1, high, low = keys[..., 0], keys[..., 1], high[0], low[0]
    y0, y1 = threefry2x32(xp, k0, k1, high, low)
    return y0.reshape(batch + shape), y1.reshape(batch + shape)


def _counters(xp: ModuleType, size: int) -> tuple[Array, Array]:
    """The numbers 0 … size-1 as high and low words."""
    if size <= 1 << 32:
        return xp.zeros(size, np.uint32), xp.arange(size, dtype=np.uint32)
    counts = xp.arange(size, dtype=np.uint64)
    return (counts >> np.uint64(32)).astype(np.uint32), counts.astype(np.uint32)


# Few blocks. Lane i is bits 64i … 64i+31 of an integer; the 32 bits above each lane absorb carries
# and bits shifted out, and are masked off.


def _hash_few(key: Array, size: int) -> Array:
    """Both words of the hash of 0 … size-1 under one key, of shape (2, size)."""
    k0, k1 = key.tolist()
    ones = _ones(size)
    return _unpack(*_hash_lanes(size, k0 * ones, k1 * ones, 0, _counts(size)), size)


def _hash_lanes(lanes: int, k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
    """The hash of `lanes` blocks at once."""
    ones = _ones(lanes)
    mask = WORD * ones
    schedule = k0, k1, k0 ^ k1 ^ PARITY * ones
    x0, x1 = x0 + k0 & mask, x1 + k1 & mask
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = x0 + x1 & mask
            x1 = (x1 << r | x1 >> 32 - r) & mask ^ x0
        x0 = x0 + schedule[(i + 1) % 3] & mask
        x1 = x1 + schedule[(i + 2) % 3] + (i + 1) * ones & mask
    return x0, x1


@lru_cache(maxsize=FEW + 1)
def _ones(lanes: int) -> int:
    return _pack(np.ones(lanes, np.uint32))


@lru_cache(maxsize=FEW + 1)
def _counts(lanes: int) -> int:
    return _pack(np.arange(lanes, dtype=np.uint32))


def _pack(words: Array) -> int:
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def _unpack(x0: int, x1: int, lanes: int) -> Array:
    """Lanes of two integers as a (2, lanes) array."""
    both = x0.to_bytes(8 * lanes, "little") + x1.to_bytes(8 * lanes, "little")
    return np.frombuffer(both, "<u8").astype(np.uint32).reshape(2, lanes)


# Many blocks.


def _hash_in_place(k0: Array | int, k1: Array | int, x0: Array, x1: Array) -> None:
    """Replace flat words x0, x1 by their hash; keys are integers or flat arrays of that length."""
    shared = _schedule(k0, k1) if isinstance(k0, int) else None
    scratch = np.empty(min(x0.size, CHUNK), np.uint32)
    for start in range(0, x0.size, CHUNK):
        part = slice(start, start + CHUNK)
        schedule = shared or _schedule(k0[part], k1[part])  # type: ignore[index]
        a, b = x0[part], x1[part]
        _hash_chunk(schedule, a, b, scratch[:a.size])


def _schedule(k0: Array | int, k1: Array | int) -> list[Array]:
    """The twelve words added to (x0, x1) before the rounds and after each four of them."""
    if isinstance(k0, int):
        k0, k1 = np.array([[k0], [k1]], np.uint32)  # length 1: scalars would warn on wraparound
    keys = k0, k1, k0 ^ k1 ^ np.uint32(PARITY)
    words = [k0, k1]
    for i in range(5):
        words += [keys[(i + 1) % 3], keys[(i + 2) % 3] + np.uint32(i + 1)]
    return words


def _hash_chunk(schedule: list[Array], x0: Array, x1: Array, t: Array) -> None:
    add, xor, either = np.add, np.bitwise_xor, np.bitwise_or
    left, right = np.left_shift, np.right_shift
    add(x0, schedule[0], x0)
    add(x1, schedule[1], x1)
    for i in range(5):
        for up, down in _SHIFTS[i % 2]:
            add(x0, x1, x0)
            left(x1, up, t)
            right(x1, down, x1)
            either(x1, t, x1)
            xor(x1, x0, x1)
        add(x0, schedule[2 * i + 2], x0)
        add(x1, schedule[2 * i + 3], x1)


@cache
def _device_kernel(xp: ModuleType) -> Any:
    """The hash as one fused CUDA kernel."""
    lines = ["unsigned int k2 = k0 ^ k1 ^ 0x1BD11BDAu;", "y0 = x0 + k0; y1 = x1 + k1;"]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            lines.append(f"y0 += y1; y1 = ((y1 << {r}) | (y1 >> {32 - r})) ^ y0;")
        lines.append(f"y0 += k{(i + 1) % 3}; y1 += k{(i + 2) % 3} + {i + 1}u;")
    return xp.ElementwiseKernel(
        "uint32 k0, uint32 k1, uint32 x0, uint32 x1", "uint32 y0, uint32 y1",
        "\n".join(lines), "threefry2x32")


# The older layout. The words of a result are numbered; a block hashes the index of a word in the
# first half together with that of its partner in the second half, so each element also depends on
# the size of the result. Narrow integers are parts of words, wide ones a word of each half.

LONGEST = 2**32 - 1  # words per key; for more, the key is split into several


def older_words(xp: ModuleType, keys: Array, count: int) -> Array:
    """`count` words for each key, of shape (..., count)."""
    blocks, rest = divmod(count, LONGEST)
    if not blocks:
        return _paired(xp, keys, count)
    keys = older_split(xp, keys, (blocks + 1,))
    many = _paired(xp, keys[..., :-1, :], LONGEST).reshape((*keys.shape[:-2], blocks * LONGEST))
    return xp.concatenate([many, _paired(xp, keys[..., -1, :], rest)], axis=-1)


def _paired(xp: ModuleType, keys: Array, count: int) -> Array:
    half = -(-count // 2)
    x0, x1 = xp.arange(half, dtype=np.uint32), xp.arange(half, 2 * half, dtype=np.uint32)
    if count % 2:
        x1[-1] = 0  # the last word has no partner
    k0, k1 = keys[..., 0], keys[..., 1]
    if keys.ndim > 1:
        k0, k1 = k0[..., None], k1[..., None]
    return xp.concatenate(threefry2x32(xp, k0, k1, x0, x1), axis=-1)[..., :count]


def older_bits(xp: ModuleType, keys: Array, bit_width: int, shape: Shape) -> Array:
    """`random_bits` in the older layout."""
    size, whole = math.prod(shape), keys.shape[:-1] + shape
    words = older_words(xp, keys, -(-bit_width * size // 32))
    if bit_width == 64:
        bits = words[..., :size].astype(np.uint64)
        bits <<= np.uint64(32)
        bits |= words[..., size:]
    elif bit_width == 32:
        bits = words
    else:
        shifts = xp.arange(0, 32, bit_width, dtype=np.uint32)
        bits = (words[..., None] >> shifts).astype(UNSIGNED[bit_width])  # the lowest bits first
        bits = bits.reshape((*words.shape[:-1], words.shape[-1] * shifts.size))[..., :size]
    return xp.ascontiguousarray(bits).reshape(whole)


def older_split(xp: ModuleType, keys: Array, shape: Shape) -> Array:
    """`split` in the older layout: a key is two consecutive words."""
    words = _paired(xp, keys, 2 * math.prod(shape))
    return words.reshape((*keys.shape[:-1], *shape, 2))
