"""Random keys: made from seeds, split, folded, and converted to and from words.

A key is one element of dtype `key<fry>`; functions also accept the older form, raw uint32 words of
shape (..., 2), and return raw keys for raw keys. Threefry-2x32 is the generator unless `impl` or
`toile.config`'s `jax_default_prng_impl` names another.
"""

from collections.abc import Sequence
from typing import NewType

import numpy as np

from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.arrays import Array
from toile.engine.config import flags
from toile.engine.source import describe, here
from toile.lax._operands import operand
from toile.primitives.random import random_unwrap, random_wrap
from toile.random._arguments import canonical_shape, key_words, reused, wrapped_key
from toile.random.generators import random_fold_in, random_seed, random_split

__all__ = [
    "Key", "PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl", "split",
    "wrap_key_data",
]

Key = NewType("Key", Array)  # for annotations: an array of keys


class PRNGSpec:
    """Names a generator without exposing it."""

    __slots__ = ("_impl",)

    def __init__(self, impl):
        self._impl = impl

    def __repr__(self):
        return f"PRNGSpec({getattr(self._impl, 'name', self._impl)!r})"

    def __hash__(self):
        return hash(self._impl)

    def __eq__(self, other):
        return isinstance(other, PRNGSpec) and self._impl == other._impl


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


def key_dtype(impl_spec=None):
    """The dtype of keys of the given generator."""
    return dtypes.key_dtype(_generator("key_dtype", impl_spec))


def key(seed, *, impl=None, dtype=None):
    """A typed key from an integer seed.

    >>> k = key(0)
    >>> k.shape
    ()
    """
    return _seeded("key", seed, _generator("key", impl, dtype))


def PRNGKey(seed, *, impl=None):
    """A key in the older form, its uint32 words, from an integer seed."""
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
        raise TypeError(f"{name}: PRNG key seed must be an integer; got {seed!r}{here()}")
    seed = seed + flags.random_seed_offset if flags.random_seed_offset else seed
    return random_seed(seed, impl)


def split(key, num=2):
    """`num` new keys along a new leading axis; a tuple gives that shape of keys."""
    typed, raw = wrapped_key("split", key)
    shape = num if isinstance(num, Sequence) else (num,)
    keys = random_split(typed, canonical_shape(shape))
    return _returned(keys, raw)


def fold_in(key, data):
    """A new key determined by `key` and an integer, such as a step or device number."""
    typed, raw = wrapped_key("fold_in", key)
    if np.ndim(data):
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {np.shape(data)} != () "
            "(use vmap for batching)" + here())
    new = random_fold_in(typed, jnp.asarray(data, dtype=np.uint32))
    return _returned(new, raw)


def key_data(keys):
    """The uint32 words behind keys, along a new last axis."""
    return random_unwrap(wrapped_key("key_data", keys, batched=True)[0])


def wrap_key_data(key_bits_array, *, impl=None, dtype=None):
    """Keys from their uint32 words."""
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


def key_impl(keys):
    """The name of the generator of keys."""
    return wrapped_key("key_impl", keys, batched=True)[0].dtype.impl.name


def clone(key):
    """The key itself, marked for another use on purpose."""
    key = operand("random_clone", key)
    return reused(key) if isinstance(key.dtype, dtypes.KeyDType) else key
