"""Random keys: how they are created, split, and converted to and from words.

A key is one element of dtype `key<fry>`. Functions also accept the older form, raw uint32 words of
shape (..., 2); functions that are called with a raw key return raw keys. Threefry-2x32 is the
generator unless `impl` or `jax_default_prng_impl` in `toile.config` names another generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NewType, TypeAlias

import numpy as np

from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.config import flags
from toile.engine.source import describe, here
from toile.lax._operands import operand
from toile.primitives.random import random_unwrap, random_wrap
from toile.random._arguments import canonical_shape, key_words, reused, wrapped_key
from toile.random.generators import random_fold_in, random_seed, random_split

Key = NewType("Key", Array)
Key.__doc__ = """The type of random keys, for use in annotations. Calling it returns its argument.

>>> def dropout_mask(key: toile.random.Key): return toile.random.bernoulli(key, 0.9, (3,))
>>> dropout_mask(toile.random.key(0)).shape
(3,)
"""


class PRNGSpec:
    """The name of a generator."""

    __slots__ = ("_impl",)

    def __init__(self, impl):
        self._impl = impl

    def __repr__(self):
        return f"PRNGSpec({getattr(self._impl, 'name', self._impl)!r})"

    def __hash__(self):
        return hash(self._impl)

    def __eq__(self, other):
        return isinstance(other, PRNGSpec) and self._impl == other._impl


GeneratorLike: TypeAlias = str | PRNGSpec | dtypes.KeyDType  # the ways to name a generator


def _generator(name, impl, dtype=None):
    """The name of the requested generator, given by name, spec or dtype."""
    if dtype is not None:
        if impl is not None:
            raise ValueError(f"{name}: Cannot specify both `impl` and `dtype`{here()}")
        impl = dtype
    if impl is None:
        impl = flags.default_prng_impl
    if isinstance(impl, PRNGSpec):
        impl = impl._impl
    if isinstance(impl, dtypes.KeyDType):
        impl = impl._impl
    found = impl if isinstance(impl, str) else getattr(impl, "name", None)
    if found is None:
        raise TypeError(
            f"{name}: unrecognized type {type(impl)} for specifying PRNG implementation, needed a "
            "name such as 'threefry2x32'" + here())
    if found not in dtypes.KEY_IMPLS:
        known = ", ".join(f'"{n}"' for n in dtypes.KEY_IMPLS)
        raise ValueError(
            f'{name}: unrecognized PRNG implementation "{found}". Did you mean one of: '
            f"{known}?{here()}"
        )
    return found


def key_dtype(impl_spec: GeneratorLike | None = None) -> dtypes.KeyDType:
    """Return the dtype of the keys of a random number generator.

    Args:
        impl_spec: name of the generator or dtype of its keys; None for the default generator.

    Returns:
        The dtype of these keys, an extended dtype that has no NumPy equivalent.

    >>> toile.random.key_dtype("rbg")
    key<rbg>
    >>> toile.random.key(0).dtype == toile.random.key_dtype()
    True
    """
    return dtypes.key_dtype(_generator("key_dtype", impl_spec))


def key(
    seed: ArrayLike, *, impl: GeneratorLike | None = None, dtype: GeneratorLike | None = None
) -> Array:
    """Create a random key from an integer seed.

    Random functions have no hidden state. They are called with a key, and equal keys yield equal
    numbers. Use each key only once, and create more keys with `split` or `fold_in`.

    Args:
        seed: integer. If 64-bit types are not enabled, only the low 32 bits of a Python integer are
            used.
        impl: name of the generator, one of `"threefry2x32"`, `"threefry4x32"`, `"philox2x32"`,
            `"philox4x32"`, `"rbg"` and `"unsafe_rbg"`; None for the default generator, which is
            `"threefry2x32"` unless `toile.config` names another generator.
        dtype: dtype of the key, another way to specify the generator.

    Returns:
        A key: an array of shape () with a key dtype.

    Raises:
        TypeError: the seed is not an integer, or it is an array that is not a scalar.

    >>> k = toile.random.key(0)
    >>> k.shape, k.dtype
    ((), key<fry>)
    >>> toile.random.uniform(k) == toile.random.uniform(toile.random.key(0))
    Array(True, dtype=bool)
    """
    return _seeded("key", seed, _generator("key", impl, dtype))


def PRNGKey(seed: ArrayLike, *, impl: GeneratorLike | None = None) -> Array:
    """Create a random key in the older form, an array of uint32 words.

    All random functions accept such keys, and functions such as `split` then return new keys in the
    same form. In new code, use `key`.

    Args:
        seed: integer. If 64-bit types are not enabled, only the low 32 bits of a Python integer are
            used.
        impl: name of the generator; None for the default generator. Raw words do not record the
            generator, so random functions treat them as keys of the default generator.

    Returns:
        A uint32 array, whose shape is (2,) for the default generator.

    >>> toile.random.PRNGKey(42)
    Array([ 0, 42], dtype=uint32)
    """
    return _returned(_seeded("PRNGKey", seed, _generator("PRNGKey", impl)), raw=True)


def _returned(keys, raw):
    """Keys in the requested form; under `jax_enable_custom_prng` all keys are typed."""
    return random_unwrap(keys) if raw and not flags.enable_custom_prng else keys


def _seeded(name, seed, impl):
    if isinstance(seed, int):
        # All 64 bits under x64, else the low 32: hash values, which are large, are common seeds.
        seed = np.int64(seed + flags.random_seed_offset)
        seed = jnp.asarray(seed if flags.enable_x64 else seed.astype(np.int32))
        return random_seed(seed, impl)
    if isinstance(getattr(seed, "dtype", None), dtypes.KeyDType):
        raise TypeError(f"{name} accepts a scalar seed, but was given a PRNG key.{here()}")
    if np.ndim(seed):
        raise TypeError(
            f"{name} accepts a scalar seed, but was given an array of shape {np.shape(seed)} != () "
            "(use vmap for batching)" + here())
    seed = seed if isinstance(seed, Array) else jnp.asarray(seed)
    if not dtypes.issubdtype(seed.dtype, np.integer):
        raise TypeError(f"{name}: PRNG key seed must be an integer; got {describe(seed)} "
                        f"(convert it with int){here()}")
    seed = seed + flags.random_seed_offset if flags.random_seed_offset else seed
    return random_seed(seed, impl)


def split(key: Array, num: int | Sequence[int] = 2) -> Array:
    """Create several new keys from one key.

    The new keys are independent of each other and of the old key, which must not be used again.

    Args:
        key: the old key.
        num: number of new keys, or the shape of the array of keys.

    Returns:
        An array of keys. Its shape is `(num,)` or, if `num` is a sequence, `num`. Iterating over
        the array yields single keys.

    >>> k1, k2 = toile.random.split(key(0))
    >>> toile.random.normal(k1) == toile.random.normal(k2)
    Array(False, dtype=bool)
    >>> toile.random.split(key(0), (3, 4)).shape
    (3, 4)
    """
    typed, raw = wrapped_key("split", key)
    shape = num if isinstance(num, Sequence) else (num,)
    keys = random_split(typed, canonical_shape(shape))
    return _returned(keys, raw)


def fold_in(key: Array, data: ArrayLike) -> Array:
    """Create a new key from a key and an integer, such as a step number or a device index.

    Args:
        key: random key. The key may be combined with many integers, but it must not also be used to
            draw numbers.
        data: integer scalar, which must fit in uint32.

    Returns:
        The new key. Different integers result in different keys.

    >>> step_key = toile.random.fold_in(key(0), 3)
    >>> step_key.shape
    ()
    >>> jnp.array_equal(step_key, toile.random.fold_in(key(0), 4))
    Array(False, dtype=bool)
    """
    typed, raw = wrapped_key("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {np.shape(data)} != () "
            "(use vmap for batching)" + here())
    new = random_fold_in(typed, jnp.asarray(data, dtype=np.uint32))
    return _returned(new, raw)


def key_data(keys: Array) -> Array:
    """Return the uint32 words that keys consist of, for example to store the keys.

    `wrap_key_data` turns words back into keys.

    Args:
        keys: array of random keys.

    Returns:
        A uint32 array with the shape of `keys` and an additional last axis, which has size 2 for
        the default generator.

    >>> toile.random.key_data(key(42))
    Array([ 0, 42], dtype=uint32)
    """
    return random_unwrap(wrapped_key("key_data", keys, batched=True)[0])


def wrap_key_data(
    key_bits_array: Array | np.ndarray, *, impl: GeneratorLike | None = None,
    dtype: GeneratorLike | None = None
) -> Array:
    """Turn uint32 words into random keys: the inverse of `key_data`.

    Args:
        key_bits_array: uint32 array whose last axis contains the words of a key.
        impl: name of the generator that the words belong to; None for the default generator.
        dtype: dtype of the keys, another way to specify the generator.

    Returns:
        An array of keys. Its shape is the shape of `key_bits_array` without the last axis.

    Raises:
        TypeError: the words are not uint32, or the last axis does not have the size of a key.

    >>> words = toile.random.key_data(key(42))
    >>> k = toile.random.wrap_key_data(words)
    >>> k.shape, k.dtype
    ((), key<fry>)
    """
    found = _generator("wrap_key_data", impl, dtype)
    words, count = key_bits_array, key_words(found)
    if not all(hasattr(words, a) for a in ("ndim", "shape", "dtype")):
        raise TypeError("JAX encountered invalid PRNG key data: needed an array, got "
                        f"{describe(words)}{here()}")
    if words.ndim < 1 or words.shape[-1] != count or words.dtype != np.uint32:
        raise TypeError(
            "JAX encountered invalid PRNG key data: wrap_key_data needed uint32 of shape "
            f"(..., {count}), got {words.dtype} of shape {tuple(words.shape)}{here()}")
    return random_wrap(words if isinstance(words, Array) else jnp.asarray(words), found)


def key_impl(keys: Array) -> str:
    """Return the name of the random number generator that keys belong to.

    Args:
        keys: array of random keys; keys in the older form are treated as keys of the default
            generator.

    Returns:
        The name, which `key` accepts as `impl`.

    >>> toile.random.key_impl(key(0))
    'threefry2x32'
    """
    dtype: Any = wrapped_key("key_impl", keys, batched=True)[0].dtype
    return dtype.impl.name


def clone(key: Array) -> Array:
    """Return a copy of a key, so that the key can be reused deliberately.

    If the flag `jax_debug_key_reuse` is set, a second use of a key raises an error, but a clone of
    the key may be used once more. If the flag is not set, `clone` returns the key unchanged.

    Args:
        key: random key.

    Returns:
        A key that yields the same numbers.

    >>> k = key(0)
    >>> toile.random.uniform(k) == toile.random.uniform(toile.random.clone(k))
    Array(True, dtype=bool)
    """
    key = operand("random_clone", key)
    return reused(key) if isinstance(key.dtype, dtypes.KeyDType) else key
