"""Threefry2x32 in integer arithmetic: an elementwise operation on words, and the key operations.

The functions are `hash_words` rules for the operations of `primitives.random`; they take an
operation and traced words of keys, with the words along the last axis. The results agree bit for
bit with those of the array kernels, and the operations fuse with the code that uses the bits. This
module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.records import dataclass
from toile.primitives.arrays import threefry
from toile.primitives.bits import eq, or_, shift_left, shift_right_logical, xor
from toile.primitives.choices import convert, select_n
from toile.primitives.families import Elementwise, add, broadcast_in_dim, mul, reshape, scalar
from toile.primitives.shapes import concatenate_all, iota, joined_words, slice_axis, word

WORDS = 2  # of a key
_UINT32, _UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)


@dataclass(frozen=True)
class ThreefryWord(Elementwise):
    """One of the two words of the hash of (x0, x1) under the key (k0, k1): twenty rounds."""

    word: int

    accepts = "u"

    def eager(self, xp: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
        return threefry.threefry2x32(xp, k0, k1, x0, x1)[self.word]

    def lower(self, k: Any, k0: Any, k1: Any, x0: Any, x1: Any) -> Any:
        keys = k0, k1, k.xor(k.xor(k0, k1), threefry.PARITY)
        x0, x1 = k.add(x0, k0), k.add(x1, k1)
        for i in range(5):
            for r in threefry.ROTATIONS[i % 2]:
                x0 = k.add(x0, x1)
                turned = k.or_(k.shift_left(x1, r), k.shift_right_logical(x1, 32 - r))
                x1 = k.xor(turned, x0)
            x0 = k.add(x0, keys[(i + 1) % 3])
            x1 = k.add(x1, k.add(keys[(i + 2) % 3], i + 1))
        return (x0, x1)[self.word]


def _hash(k0: Any, k1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """Both words, computed together where both are used."""
    return ThreefryWord(0)(k0, k1, x0, x1), ThreefryWord(1)(k0, k1, x0, x1)


def _hashed_counts(words: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The hash of 0 ... prod(shape) - 1 under each key, of shape (*keys, prod(shape))."""
    batch, size = words.shape[:-1], math.prod(shape)
    whole, dims = (*batch, size), tuple(range(len(batch)))
    keys = [word(words, 0), word(words, 1)]
    if batch:  # a key of rank 0 needs no copies
        keys = [broadcast_in_dim(w, whole, dims) for w in keys]
    if size <= 1 << 32:
        return _hash(keys[0], keys[1], scalar(0, _UINT32), iota(_UINT32, whole, len(batch)))
    count = iota(_UINT64, whole, len(batch))
    high = convert(shift_right_logical(count, scalar(32, _UINT64)), _UINT32)
    return _hash(keys[0], keys[1], high, convert(count, _UINT32))


def bits(op: Any, words: Any) -> Any:
    """The rule of RandomBits."""
    if op.older:
        found = _older_bits(op, words)
    elif op.bit_width == 64:
        found = _wide(*_hashed_counts(words, op.shape))
    else:
        found = convert(xor(*_hashed_counts(words, op.shape)), np.dtype(f"uint{op.bit_width}"))
    return reshape(found, (*words.shape[:-1], *op.shape))


def _wide(high: Any, low: Any) -> Any:
    """Words as 64-bit numbers."""
    high = shift_left(convert(high, _UINT64), scalar(32, _UINT64))
    return or_(high, convert(low, _UINT64))


def split(op: Any, words: Any) -> Any:
    """The rule of RandomSplit."""
    if op.older:
        return _older_split(words, op.shape)
    both = joined_words(*_hashed_counts(words, op.shape))
    return reshape(both, (*words.shape[:-1], *op.shape, WORDS))


# The older layout of counters: see the array kernels.


def _hashed_pairs(words: Any, count: int) -> tuple[Any, Any]:
    """The halves of `count` words (`count + 1` if that is odd) for each key."""
    batch, half = words.shape[:-1], -(-count // 2)
    whole, axis = (*batch, half), len(batch)
    keys = [broadcast_in_dim(word(words, i), whole, tuple(range(axis))) for i in range(WORDS)]
    first = iota(_UINT32, whole, axis)
    second = add(first, scalar(half, _UINT32))
    if count % 2:  # the last word has no partner
        last = broadcast_in_dim(scalar(half - 1, _UINT32), whole, ())
        zero = broadcast_in_dim(scalar(0, _UINT32), whole, ())
        second = select_n(eq(first, last), second, zero)
    return _hash(keys[0], keys[1], first, second)


def _joined_halves(first: Any, second: Any) -> Any:
    return concatenate_all([first, second], first.ndim - 1)


def _older_split(words: Any, shape: tuple[int, ...]) -> Any:
    """New keys of the given shape from each key."""
    both = _joined_halves(*_hashed_pairs(words, WORDS * math.prod(shape)))
    return reshape(both, (*words.shape[:-1], *shape, WORDS))


def _older_words(words: Any, count: int) -> Any:
    """`count` words for each key, along the last axis."""
    axis = words.ndim - 1
    blocks, rest = divmod(count, threefry.LONGEST)
    if not blocks:
        both = _joined_halves(*_hashed_pairs(words, count))
        return slice_axis(both, 0, count, axis)
    keys = _older_split(words, (blocks + 1,))
    both = _joined_halves(*_hashed_pairs(slice_axis(keys, 0, blocks, axis), threefry.LONGEST))
    many = slice_axis(both, 0, threefry.LONGEST, axis + 1)
    many = reshape(many, (*words.shape[:-1], blocks * threefry.LONGEST))
    last = reshape(slice_axis(keys, blocks, blocks + 1, axis), words.shape)
    return concatenate_all([many, _older_words(last, rest)], axis)


def _older_bits(op: Any, words: Any) -> Any:
    """Bits along the last axis: narrow integers are parts of words, the lowest bits first."""
    size, width, axis = math.prod(op.shape), op.bit_width, words.ndim - 1
    if width == 64 and 2 * size < threefry.LONGEST:
        return _wide(*_hashed_pairs(words, 2 * size))
    found = _older_words(words, -(-width * size // 32))
    if width == 32:
        return found
    if width == 64:
        return _wide(slice_axis(found, 0, size, axis), slice_axis(found, size, 2 * size, axis))
    parts = 32 // width
    whole = (*found.shape, parts)
    spread = broadcast_in_dim(found, whole, tuple(range(axis + 1)))
    by = mul(iota(_UINT32, whole, axis + 1), scalar(width, _UINT32))
    narrow = convert(shift_right_logical(spread, by), np.dtype(f"uint{width}"))
    flat = reshape(narrow, (*found.shape[:-1], found.shape[-1] * parts))
    return slice_axis(flat, 0, size, axis)


def fold_in(op: Any, words: Any, data: Any) -> Any:
    """The rule of RandomFoldIn."""
    return joined_words(*_hash(word(words, 0), word(words, 1), scalar(0, _UINT32), data))


def seed(op: Any, seeds: Any) -> Any:
    """The rule of RandomSeed: both words of 64-bit seeds, (0, seed mod 2**32) of narrower ones."""
    if seeds.dtype.itemsize == 8:
        wide = convert(seeds, _UINT64)
        high = convert(shift_right_logical(wide, scalar(32, _UINT64)), _UINT32)
        return joined_words(high, convert(wide, _UINT32))
    if dtypes.kind(seeds.dtype) == "i":
        seeds = convert(seeds, np.dtype(np.int32))
    high = broadcast_in_dim(scalar(0, _UINT32), seeds.shape, ())
    return joined_words(high, convert(seeds, _UINT32))
