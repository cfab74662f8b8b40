"""Random bits from keys: threefry2x32 as operations on arrays of keys.

Keys have an extended dtype over uint32[..., 2]; these operations take and return keys. Keys of
other generators are only wrapped and unwrapped here; their bits and new keys come from
`toile.random.generators`. This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.avals import Aval
from toile.engine.config import flags
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives import rules, threefry_words
from toile.primitives.arrays import threefry
from toile.primitives.families import bdim_at, mapped_first, zeros
from toile.primitives.rules import mapped_in_place

_UINT32 = np.dtype(np.uint32)


class _Random(Operation):
    """Base of the random operations, which have no derivatives and accept raw buffers of keys."""

    handles_zeros = True

    jvp = rules.no_derivative
    physical = rules.itself

    vmap = mapped_first

    def need_keys(self, keys: Aval) -> None:
        if not dtypes.is_extended(keys.dtype):
            raise shape_error(self.name, "an array of random keys", [keys],
                              "make one with toile.random.key(seed)")


@dataclass(frozen=True)
class RandomSeed(_Random):
    """A key from each integer."""

    makes_weak = True  # a key array from plain operands: wrapped with the inferred aval
    key_use = key_uses.makes_keys
    hash_words = threefry_words.seed

    dtype: Any

    def infer(self, seeds: Aval) -> Aval:
        if dtypes.kind(seeds.dtype) not in "iu":
            raise shape_error(self.name, "integer seeds", [seeds])
        return Aval(seeds.shape, self.dtype)

    def eager(self, xp: Any, seeds: Any) -> Any:
        return threefry.seed(xp, seeds)

    vmap = mapped_in_place


@dataclass(frozen=True)
class RandomSplit(_Random):
    """New keys of `shape` from each key; `older`: with JAX's older counter layout."""

    shape: tuple[int, ...]
    older: bool = False
    hash_words = threefry_words.split

    key_use = key_uses.splits

    def infer(self, keys: Aval) -> Aval:
        self.need_keys(keys)
        return Aval((*keys.shape, *self.shape), keys.dtype)

    def eager(self, xp: Any, keys: Any) -> Any:
        if self.older:
            return threefry.older_split(xp, keys, self.shape)
        return threefry.split(xp, keys, self.shape)


class RandomFoldIn(_Random):
    """A new key from each key and a uint32; shapes are equal."""

    key_use = key_uses.makes_keys
    hash_words = threefry_words.fold_in

    def infer(self, keys: Aval, data: Aval) -> Aval:
        self.need_keys(keys)
        if keys.shape != data.shape or data.dtype != _UINT32:
            raise shape_error(self.name, "keys and uint32 data of equal shapes", [keys, data])
        return keys

    def eager(self, xp: Any, keys: Any, data: Any) -> Any:
        return threefry.fold_in(xp, keys, data)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        moved = [bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True)]
        return self(*moved), 0


@dataclass(frozen=True)
class RandomBits(_Random):
    """Unsigned integers of `bit_width` bits, `shape` of them for each key; `older` as in splits."""

    bit_width: int
    shape: tuple[int, ...]
    older: bool = False
    hash_words = threefry_words.bits

    def infer(self, keys: Aval) -> Aval:
        self.need_keys(keys)
        return Aval((*keys.shape, *self.shape), np.dtype(f"uint{self.bit_width}"))

    def eager(self, xp: Any, keys: Any) -> Any:
        if self.older:
            return threefry.older_bits(xp, keys, self.bit_width, self.shape)
        return threefry.random_bits(xp, keys, self.bit_width, self.shape)


@dataclass(frozen=True)
class RandomWrap(_Random):
    """Keys from their words, the last axis."""

    makes_weak = True  # a key array from plain operands: wrapped with the inferred aval
    key_use = key_uses.wraps
    retypes_keys = True

    dtype: Any

    def infer(self, words: Aval) -> Aval:
        size = dtypes.key_words(self.dtype)
        if words.dtype != _UINT32 or not words.shape or words.shape[-1] != size:
            raise shape_error(self.name, f"uint32 words with a last axis of {size}", [words])
        return Aval(words.shape[:-1], self.dtype)

    def eager(self, xp: Any, words: Any) -> Any:
        return words


class RandomUnwrap(_Random):
    """The words of keys, as a new last axis."""

    key_use = key_uses.reads
    retypes_keys = True

    def infer(self, keys: Aval) -> Aval:
        self.need_keys(keys)
        return Aval((*keys.shape, dtypes.key_words(keys.dtype)), _UINT32)

    def eager(self, xp: Any, keys: Any) -> Any:
        return keys


class RandomClone(_Random):
    """The same keys, which may be used once more where key reuse is checked."""

    key_use = key_uses.makes_keys

    def infer(self, keys: Aval) -> Aval:
        self.need_keys(keys)
        return keys

    def eager(self, xp: Any, keys: Any) -> Any:
        return keys

    vmap = mapped_in_place


class RandomConsume(RandomClone):
    """The same keys, marked as consumed before bits are made from their words."""

    def key_use(self, avals: Sequence[Aval]) -> key_uses.KeyUse:
        return key_uses.KeyUse({0: True}, forwards=key_uses.keeps(self, avals).forwards)


def random_seed(seeds: Any) -> Any:
    return RandomSeed(dtypes.key_dtype("threefry2x32"))(seeds)


def random_split(keys: Any, shape: Sequence[int]) -> Any:
    return RandomSplit(tuple(shape), not flags.threefry_partitionable)(keys)


def random_fold_in(keys: Any, data: Any) -> Any:
    return _fold_in(keys, data)


def random_bits(keys: Any, bit_width: int, shape: Sequence[int]) -> Any:
    return RandomBits(bit_width, tuple(shape), not flags.threefry_partitionable)(keys)


def random_wrap(words: Any, impl: str | None = None) -> Any:
    """Keys of the named generator, or of the configured one."""
    return RandomWrap(dtypes.key_dtype(impl))(words)


def blank(aval: Aval) -> Any:
    """An array of zeros of any dtype; keys have words of zeros."""
    impl = getattr(aval.dtype, "impl", None)
    if impl is None:
        return zeros(aval)
    return random_wrap(zeros(Aval((*aval.shape, *impl.key_shape), np.dtype(np.uint32))), impl.name)


def random_unwrap(keys: Any) -> Any:
    return _unwrap(keys)


def random_clone(keys: Any) -> Any:
    return _clone(keys)


def random_consume(keys: Any) -> Any:
    return _consume(keys)


_fold_in, _unwrap, _clone = RandomFoldIn(), RandomUnwrap(), RandomClone()
_consume = RandomConsume()
