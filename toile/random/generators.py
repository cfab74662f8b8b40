"""The operations of each generator on keys: seeds, splits, folds and bits.

Threefry-2x32 has its own operations, which the compiler fuses. The operations of the other
generators are functions of the words of one key: Threefry-4x32 and Philox hash a counter with the
key; `rbg` splits and folds like Threefry and draws bits with `lax.rng_bit_generator`; `unsafe_rbg`
uses `lax.rng_bit_generator` for splits and folds too. All results equal those of JAX, bit for bit.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import vmap
from toile.engine.check_switch import keys_checked
from toile.engine.source import here
from toile.lax.raw_bits import RandomAlgorithm, drawn, philox2x32, philox4x32, threefry4x32
from toile.primitives import random as fry
from toile.primitives.random import random_consume, random_unwrap, random_wrap

GENERATOR = "threefry2x32"


class _Generator(NamedTuple):
    """Functions of the words of one key; `draw` draws bits for `rbg` keys."""

    seed: object  # (seed) -> words
    split: object  # (words, shape, draw) -> words of shape (*shape, n)
    fold_in: object  # (words, data, draw) -> words
    bits: object  # (words, bit_width, shape, draw) -> unsigned integers


# ------------------------------------------------------------------------ used by toile.random


def random_seed(seeds, impl):
    """A key from each integer, for the generator named `impl`."""
    if impl == GENERATOR:
        return fry.random_seed(seeds)
    return random_wrap(_each(seeds.ndim, _GENERATORS[impl].seed)(seeds), impl)


def random_split(keys, shape):
    """New keys of `shape` from each key."""
    impl = keys.dtype.impl.name
    if impl == GENERATOR:
        return fry.random_split(keys, shape)
    split = functools.partial(_GENERATORS[impl].split, shape=tuple(shape), draw=_draw_for(keys))
    return random_wrap(_each(keys.ndim, split)(_spent_words(keys)), impl)


def random_fold_in(keys, data):
    """A new key from each key and a uint32."""
    impl = keys.dtype.impl.name
    if impl == GENERATOR:
        return fry.random_fold_in(keys, data)
    fold = functools.partial(_GENERATORS[impl].fold_in, draw=_draw_for(keys))
    return random_wrap(_each(keys.ndim, fold)(random_unwrap(keys), data), impl)


def random_bits(keys, bit_width, shape):
    """Unsigned integers of `bit_width` bits and `shape` from each key."""
    if keys.dtype.impl.name == GENERATOR:
        return fry.random_bits(keys, bit_width, shape)
    bits = _GENERATORS[keys.dtype.impl.name].bits
    bits = functools.partial(bits, bit_width=bit_width, shape=tuple(shape), draw=_draw_for(keys))
    return _each(keys.ndim, bits)(_spent_words(keys))


def _spent_words(keys):
    """The words of keys; marks the keys as used, because the reuse check cannot follow words."""
    return random_unwrap(random_consume(keys) if keys_checked() else keys)


def _each(rank, f):
    for _ in range(rank):
        f = vmap(f)
    return f


def _draw_for(keys):
    """`rng_bit_generator` for one key; for arrays of keys, a version that draws from each key."""
    return _each_state if keys.ndim else lax.rng_bit_generator


def _each_state(state, shape, dtype=np.uint32):
    return drawn(state, shape, np.dtype(dtype), RandomAlgorithm.RNG_DEFAULT)


# ------------------------------------------------------------------------- counter-based generators


def _halves(seed):
    """The upper and the lower word of a seed."""
    return list(random_unwrap(fry.random_seed(seed)))


def _counters(shape):
    """The indices of the elements of an array, as upper and lower words."""
    size = math.prod(shape)
    if size > 2**32:
        raise NotImplementedError(
            f"random bits: needed at most 2**32 numbers at once, got shape {shape}{here()}")
    low = lax.reshape(lax.iota(np.uint32, size), shape)
    return [lax.full_like(low, 0), low]


def _counting(hashed, seed, zeros, wide):
    """The generator that is based on a hash of key words and counter words.

    A counter contains `zeros` words of zeros. They follow the element's index for bits and precede
    it for keys, so that no key repeats bits. `wide` reduces the words of the hash to two, for
    64-bit numbers."""
    padding = [np.uint32(0)] * zeros

    def key_of(words, number):
        out = hashed(words, padding + number)
        return jnp.stack(out[:len(words)], -1)

    def split(words, shape, draw):
        return key_of(list(words), _counters(shape))

    def fold_in(words, data, draw):
        return key_of(list(words), [np.uint32(0), data])

    def bits(words, bit_width, shape, draw):
        out = hashed(list(words), _counters(shape) + padding)
        if bit_width == 64:
            high, low = (lax.convert_element_type(w, np.uint64) for w in wide(out))
            return lax.bitwise_or(lax.shift_left(high, np.uint64(32)), low)
        mixed = functools.reduce(lax.bitwise_xor, out)
        return mixed if bit_width == 32 else lax.convert_element_type(mixed, f"uint{bit_width}")

    return _Generator(seed, split, fold_in, bits)


_ZERO = np.uint32(0)


def _philox2_seed(seed):
    return jnp.stack(philox2x32([_ZERO], _halves(seed))[:1])


def _philox4_seed(seed):
    return jnp.stack(philox4x32([_ZERO, _ZERO], [*_halves(seed), _ZERO, _ZERO])[:2])


def _threefry4_seed(seed):
    return jnp.stack(threefry4x32([*_halves(seed), _ZERO, _ZERO], [_ZERO] * 4))


def _folded(words):
    return words[0] ^ words[2], words[1] ^ words[3]


# ------------------------------------------------------------ generators by rng_bit_generator


def _rbg_seed(seed):
    half = random_unwrap(fry.random_seed(seed))
    return jnp.concatenate([half, half])


def _as_pair(words):
    """The words of an `rbg` key as two Threefry keys."""
    return random_wrap(lax.reshape(words, (2, 2)), GENERATOR)


def _rbg_split(words, shape, draw):
    halves = random_unwrap(fry.random_split(_as_pair(words), shape))
    return lax.reshape(jnp.moveaxis(halves, 0, -2), (*shape, 4))


def _rbg_fold_in(words, data, draw):
    both = lax.broadcast(data, (2,))
    return lax.reshape(random_unwrap(fry.random_fold_in(_as_pair(words), both)), (4,))


def _rbg_bits(words, bit_width, shape, draw):
    return draw(words, shape, f"uint{bit_width}")[1]


_STEPS = 10  # blocks drawn per new key, of which one is used: as good as a hash


def _unsafe_split(words, shape, draw):
    _, drawn_keys = draw(words, (_STEPS * math.prod(shape), 4), np.uint32)
    return lax.reshape(drawn_keys[::_STEPS], (*shape, 4))


def _unsafe_fold_in(words, data, draw):
    _, drawn_keys = draw(_rbg_seed(data), (_STEPS, 4), np.uint32)
    return words ^ drawn_keys[-1]


_GENERATORS = {
    "threefry4x32": _counting(threefry4x32, _threefry4_seed, 2, _folded),
    "philox2x32": _counting(philox2x32, _philox2_seed, 0, lambda words: words),
    "philox4x32": _counting(philox4x32, _philox4_seed, 2, lambda words: words[:2]),
    "rbg": _Generator(_rbg_seed, _rbg_split, _rbg_fold_in, _rbg_bits),
    "unsafe_rbg": _Generator(_rbg_seed, _unsafe_split, _unsafe_fold_in, _rbg_bits),
}
