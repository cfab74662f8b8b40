"""Random trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile import dtypes, random
from toile import tree as trees
from toile.engine.trace import Array
from toile.typing import DTypeLike


def split_key_like(rng_key: Array, target_tree: Any) -> Any:
    """A tree of keys, one for each leaf."""
    structure = trees.structure(target_tree)
    keys = random.split(rng_key, structure.num_leaves)
    return trees.unflatten(structure, [keys[i] for i in range(structure.num_leaves)])


def random_like(
    rng_key: Array, target_tree: Any, sampler: Callable[..., Any] = random.normal,
    dtype: DTypeLike | None = None,
) -> Any:
    """Samples in the shapes (and dtypes) of the leaves, by sampler(key, shape, dtype)."""
    draw = lambda leaf, key: sampler(key, leaf.shape, dtype or leaf.dtype)
    return trees.map(draw, target_tree, split_key_like(rng_key, target_tree))


def unwrap_random_key_data(input_tree: Any) -> Any:
    """The tree with keys as the integers that they hold."""
    is_key = lambda x: isinstance(x, Array) and dtypes.issubdtype(x.dtype, dtypes.prng_key)
    return trees.map(lambda x: random.key_data(x) if is_key(x) else x, input_tree)
