"""Extended dtypes, whose elements are not numbers but are stored as small blocks of numbers.

Random keys are the only kind. NumPy does not have these dtypes. They provide the part of
`np.dtype`'s interface that generic code reads. `dtypes` re-exports this module.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from toile.engine.config import flags
from toile.engine.records import dataclass
from toile.engine.source import here


class extended(np.generic):
    """The category of the dtypes that NumPy does not have, for use with `issubdtype`."""


class prng_key(extended):
    """The category of the dtypes of random keys, for use with `issubdtype`."""


class ExtendedDType:
    """Base of dtypes that NumPy does not know; `type` is their scalar type."""

    type: type
    name: str
    itemsize: int


@dataclass(frozen=True)
class KeyImpl:
    """What dtypes need from a random bit generator: its name, its tag and the shape of one key."""

    name: str
    tag: str
    key_shape: tuple[int, ...]

    def __str__(self) -> str:
        return self.tag


KEY_IMPLS: dict[str, KeyImpl] = {
    impl.name: impl
    for impl in (
        KeyImpl("threefry2x32", "fry", (2,)),
        KeyImpl("threefry4x32", "fry4", (4,)),
        KeyImpl("philox2x32", "phx2", (1,)),
        KeyImpl("philox4x32", "phx4", (2,)),
        KeyImpl("rbg", "rbg", (4,)),
        KeyImpl("unsafe_rbg", "urbg", (4,)),
    )
}


class KeyDType(ExtendedDType):
    """The dtype of random keys, `key<fry>`: each element is a block of uint32 numbers."""

    __slots__ = ("_hash", "impl")
    type = prng_key
    kind = "V"

    def __init__(self, impl: Any) -> None:
        self.impl = impl
        self._hash = hash((KeyDType, impl))

    @property
    def _impl(self) -> Any:  # JAX's name for it
        return self.impl

    @property
    def name(self) -> str:
        return f"key<{self.impl.tag}>"

    @property
    def itemsize(self) -> int:
        return 4 * math.prod(self.impl.key_shape)

    @property
    def physical_shape(self) -> tuple[int, ...]:
        """Shape of the uint32 block behind one element."""
        return tuple(self.impl.key_shape)

    def __eq__(self, other: object) -> bool:
        return type(other) is KeyDType and self.impl == other.impl

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyDType, (self.impl,)


def key_dtype(impl: str | None = None) -> KeyDType:
    """The key dtype of the generator named `impl`, by default the configured one."""
    name = flags.default_prng_impl if impl is None else impl
    if name not in KEY_IMPLS:
        raise ValueError(f"key_dtype: needed one of {list(KEY_IMPLS)}, got {name!r}{here()}")
    return _key_dtypes(KEY_IMPLS[name])


_key_dtypes = functools.cache(KeyDType)


def key_words(dtype: KeyDType) -> int:
    """The number of uint32 numbers that make up one key of this dtype."""
    return math.prod(dtype.impl.key_shape)


def is_extended(dtype: Any) -> bool:
    """Whether `dtype` is an extended dtype, such as that of random keys."""
    return isinstance(dtype, ExtendedDType)
