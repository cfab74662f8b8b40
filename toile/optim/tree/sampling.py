"""Trees of random numbers and random keys."""

from __future__ import annotations

from collections.abc import Callable

from toile import dtypes, random
from toile import tree as trees
from toile.engine.annotations import Array, PyTree
from toile.typing import DTypeLike


def split_key_like(rng_key: Array, target_tree: PyTree) -> PyTree:
    """Create a tree of random keys, one for each leaf.

    Args:
        rng_key: random key to split.
        target_tree: any tree.

    Returns:
        A tree of keys with the structure of `target_tree`.

    >>> from toile import optim
    >>> keys = optim.tree.split_key_like(key(0), {"a": 1.0, "b": 2.0})
    >>> sorted(keys)
    ['a', 'b']
    """
    structure = trees.structure(target_tree)
    keys = random.split(rng_key, structure.num_leaves)
    return trees.unflatten(structure, [keys[i] for i in range(structure.num_leaves)])


def random_like(
    rng_key: Array, target_tree: PyTree, sampler: Callable[..., Array] = random.normal,
    dtype: DTypeLike | None = None,
) -> PyTree:
    """Create a tree of random samples with the structure and shapes of another tree.

    Args:
        rng_key: random key.
        target_tree: tree of arrays.
        sampler: function `sampler(key, shape, dtype)` that returns samples.
        dtype: dtype of the samples; if None, the dtype of each leaf is used.

    Returns:
        A tree like `target_tree`.

    >>> from toile import optim
    >>> samples = optim.tree.random_like(key(0), {"a": jnp.zeros((2, 3))})
    >>> samples["a"].shape
    (2, 3)
    """
    draw = lambda leaf, key: sampler(key, leaf.shape, dtype or leaf.dtype)
    return trees.map(draw, target_tree, split_key_like(rng_key, target_tree))


def unwrap_random_key_data(input_tree: PyTree) -> PyTree:
    """Replace random keys in a tree with the arrays of integers that represent them.

    Args:
        input_tree: any tree.

    Returns:
        The new tree. Leaves that are not keys are unchanged.

    >>> from toile import optim
    >>> optim.tree.unwrap_random_key_data({"key": key(0), "w": 1.0})
    {'key': Array([0, 0], dtype=uint32), 'w': 1.0}
    """
    is_key = lambda x: isinstance(x, Array) and dtypes.issubdtype(x.dtype, dtypes.prng_key)
    return trees.map(lambda x: random.key_data(x) if is_key(x) else x, input_tree)
