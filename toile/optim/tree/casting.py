"""Functions that read and convert the dtypes of trees."""

from __future__ import annotations

import functools
from typing import Any, Literal

from toile import numpy as jnp
from toile import tree as trees
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.tree_util import keystr, tree_flatten_with_path
from toile.typing import DTypeLike


def cast_like(tree: PyTree, other_tree: PyTree) -> PyTree:
    """Convert each leaf to the dtype of the corresponding leaf of another tree.

    Args:
        tree: tree of arrays.
        other_tree: tree of the same structure. Where one of its leaves has no dtype, the
            corresponding leaf of `tree` stays unchanged.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.cast_like({"a": jnp.ones(1)}, {"a": jnp.ones(1, jnp.bfloat16)})
    {'a': Array([1], dtype=bfloat16)}
    """
    like = lambda x, other: x.astype(other.dtype) if hasattr(other, "dtype") else x
    return trees.map(like, tree, other_tree)


def cast(tree: PyTree, dtype: DTypeLike | None) -> PyTree:
    """Convert all leaves to one dtype.

    Args:
        tree: tree of arrays.
        dtype: dtype of the result; if None, the tree itself is returned.

    Returns:
        A tree like `tree`.

    >>> from toile import optim
    >>> optim.tree.cast({"a": jnp.ones(1)}, jnp.bfloat16)
    {'a': Array([1], dtype=bfloat16)}
    """
    return tree if dtype is None else trees.map(lambda x: x.astype(dtype), tree)


def dtype(
    tree: PyTree, mixed_dtype_handler: Literal["promote", "highest", "lowest"] | None = None
) -> DTypeLike:
    """Return the common dtype of a tree's leaves.

    Args:
        tree: tree of arrays. If it has no leaves, the default floating-point dtype is returned.
        mixed_dtype_handler: what to do if the leaves have different dtypes. "promote" returns the
            dtype to which all of them promote. "highest" returns the leaf dtype to which all other
            leaf dtypes promote, and "lowest" returns the leaf dtype that promotes to all others. If
            `mixed_dtype_handler` is None, an error is raised.

    Returns:
        A dtype.

    Raises:
        ValueError: dtypes differ and `mixed_dtype_handler` is None, or two dtypes cannot be ordered
            because neither promotes to the other.

    >>> from toile import optim
    >>> mixed = {"a": jnp.ones(1), "b": jnp.ones(1, jnp.bfloat16)}
    >>> print(optim.tree.dtype(mixed, "highest"), optim.tree.dtype(mixed, "lowest"))
    float32 bfloat16
    """
    leaves, _ = tree_flatten_with_path(tree)
    if not leaves:
        return jnp.asarray([]).dtype
    found = [jnp.asarray(x).dtype for _, x in leaves]
    if mixed_dtype_handler is None:
        wrong = [f"{keystr(p)}: {d}" for (p, _), d in zip(leaves, found) if d != found[0]]
        if wrong:
            raise ValueError(f"dtype: needed {found[0]} in every leaf, got " + ", ".join(wrong))
        return found[0]
    if mixed_dtype_handler not in _HANDLERS:
        raise ValueError(
            f"dtype: needed mixed_dtype_handler None, 'promote', 'highest' or 'lowest', got "
            f"{mixed_dtype_handler!r}{here()}"
        )
    return functools.reduce(_HANDLERS[mixed_dtype_handler], found)


def _ordered(one: Any, two: Any) -> tuple[Any, Any]:
    """Return the lower and the higher of two dtypes, if one of them promotes to the other."""
    promoted = jnp.promote_types(one, two)
    if promoted == one:
        return two, one
    if promoted == two:
        return one, two
    raise ValueError(
        f"dtype: needed dtypes that promote to one of them, got {one} and {two}{here()}"
    )


_HANDLERS = {
    "promote": jnp.promote_types,
    "highest": lambda one, two: _ordered(one, two)[1],
    "lowest": lambda one, two: _ordered(one, two)[0],
}
