"""Keys of `flax.nn`: `stochastic` sets one for a block, and `make_rng` derives keys from it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from toile import random
from toile.compat.removed.flax_nn.running import pushed, stacks
from toile.core.nn.stochastic import drop
from toile.engine.source import here

__all__ = ["dropout", "is_stochastic", "make_rng", "stochastic"]


@contextlib.contextmanager
def stochastic(rng: Any) -> Iterator[None]:
    """Let `make_rng` derive keys from `rng` while the block runs."""
    with pushed(stacks.keys, [rng, 0]):
        yield


def is_stochastic() -> bool:
    """Whether `stochastic` is in effect."""
    return bool(stacks.keys)


def make_rng() -> Any:
    """A key that is different in each call."""
    if not stacks.keys:
        raise ValueError(
            "make_rng: needed a key, got none: Use the `nn.stochastic()` context manager to enable "
            f"stochastic computations (with nn.stochastic(key): ...){here()}"
        )
    entry = stacks.keys[-1]
    entry[1] += 1
    return random.fold_in(entry[0], entry[1])


def dropout(inputs: Any, rate: float, deterministic: bool = False, rng: Any = None) -> Any:
    """Set elements to zero with probability `rate`, and divide the others by `1 - rate`."""
    if rate == 0.0 or deterministic:
        return inputs
    return drop(make_rng() if rng is None else rng, inputs, rate)
