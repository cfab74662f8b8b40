"""Random streams of scopes: keys, and names and counts that are folded into a key before use.

As in Flax, the names in the path and the number of the draw are hashed with SHA-1, and the first
four bytes of the hash are folded into the stream's key. If `flax_fix_rng_separator` is set, the
hash includes separators.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection
from typing import Any

import numpy as np

from toile import dtypes, random
from toile.configurations import config
from toile.core.frozen_dict import FrozenDict
from toile.engine.source import here
from toile.engine.trace import Array
from toile.tree_util import GetAttrKey, register_pytree_with_keys


@functools.lru_cache(maxsize=4096)
def _digest(data: tuple[Any, ...], separated: bool) -> np.uint32:
    """The first 32 bits of the hash of a path and a count."""
    text = hashlib.sha1()
    for x in data:
        if separated:
            text.update(b"\x00")
        if isinstance(x, str):
            text.update(x.encode("utf-8"))
        elif isinstance(x, int):
            text.update(x.to_bytes((x.bit_length() + 7) // 8, byteorder="big"))
        else:
            raise ValueError(f"Expected int or string, got: {x}{here()}")
    return np.uint32(int.from_bytes(text.digest()[:4], byteorder="big"))


def fold_in_static(rng: Any, data: Collection[str | int]) -> Any:
    """Fold names and counts that are known during tracing into a key."""
    if not data:
        return rng
    return random.fold_in(rng, _digest(tuple(data), config.flax_fix_rng_separator))


class LazyRng:
    """A key, and the names and counts to fold into it; a pytree whose leaf is the key."""

    __slots__ = ("rng", "suffix")

    def __init__(self, rng: Any, suffix: tuple[str | int, ...]):
        self.rng = rng
        self.suffix = suffix

    def as_jax_rng(self) -> Any:
        """Return the key with the suffix folded in."""
        return fold_in_static(self.rng, self.suffix)

    @staticmethod
    def create(rng: Any, *suffix: str | int) -> LazyRng:
        """Create a lazy key from a key, or from a lazy key by extending its suffix."""
        if isinstance(rng, LazyRng):
            return LazyRng(rng.rng, rng.suffix + suffix)
        return LazyRng(rng, suffix)

    def clear_suffix(self) -> LazyRng:
        """Return the same key with an empty suffix."""
        return LazyRng(self.rng, ())

    def replace(self, **updates: Any) -> LazyRng:
        """Return a copy with some fields replaced."""
        return LazyRng(**{"rng": self.rng, "suffix": self.suffix, **updates})

    def __repr__(self) -> str:
        return f"LazyRng(rng={self.rng}, suffix={self.suffix})"

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, LazyRng):
            return NotImplemented
        return (self.rng, self.suffix) == (other.rng, other.suffix)

    __hash__ = None  # type: ignore[assignment]


register_pytree_with_keys(
    LazyRng,
    lambda x: (((GetAttrKey("rng"), x.rng),), x.suffix),
    lambda suffix, children: LazyRng(next(iter(children)), suffix),
    lambda x: ((x.rng,), x.suffix),
)


def is_valid_rng(rng: Any) -> bool:
    """Return whether `rng` is one key: a typed key of shape (), or an array of two uint32 words."""
    if isinstance(rng, LazyRng):
        return True
    if not isinstance(rng, np.ndarray | Array):
        return False
    if dtypes.issubdtype(rng.dtype, dtypes.prng_key):
        return rng.shape == ()
    return rng.shape == (2,) and rng.dtype == np.uint32


def is_valid_rngs(rngs: Any) -> bool:
    """Return whether `rngs` is a dict that maps names of streams to keys."""
    return isinstance(rngs, dict | FrozenDict) and all(
        isinstance(name, str) and is_valid_rng(rng) for name, rng in rngs.items()
    )
