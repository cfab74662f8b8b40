"""The dtypes of trees."""

from __future__ import annotations

import functools
from typing import Any

from toile import numpy as jnp
from toile import tree as trees
from toile.tree_util import keystr, tree_flatten_with_path
from toile.typing import DTypeLike


def cast_like(tree: Any, other_tree: Any) -> Any:
    """Each leaf in the dtype of its partner, where that has one."""
    like = lambda x, other: x.astype(other.dtype) if hasattr(other, "dtype") else x
    return trees.map(like, tree, other_tree)


def cast(tree: Any, dtype: DTypeLike | None) -> Any:
    """All leaves in one dtype; the tree itself if dtype is None."""
    return tree if dtype is None else trees.map(lambda x: x.astype(dtype), tree)


def dtype(tree: Any, mixed_dtype_handler: str | None = None) -> DTypeLike:
    """The one dtype of a tree; of mixed ones the 'highest', the 'lowest' or their 'promote'.

    >>> import toile.numpy as jnp
    >>> mixed = {"a": jnp.ones(1), "b": jnp.ones(1, jnp.bfloat16)}
    >>> print(dtype(mixed, "highest"), dtype(mixed, "lowest"))
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
            f"{mixed_dtype_handler!r}"
        )
    return functools.reduce(_HANDLERS[mixed_dtype_handler], found)


def _ordered(one: Any, two: Any) -> tuple[Any, Any]:
    """The lower and the higher of two dtypes, if one of them promotes to the other."""
    promoted = jnp.promote_types(one, two)
    if promoted == one:
        return two, one
    if promoted == two:
        return one, two
    raise ValueError(f"dtype: needed dtypes of which one holds the other, got {one} and {two}")


_HANDLERS = {
    "promote": jnp.promote_types,
    "highest": lambda one, two: _ordered(one, two)[1],
    "lowest": lambda one, two: _ordered(one, two)[0],
}
