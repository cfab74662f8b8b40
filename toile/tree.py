"""Functions on trees of containers, under the short names of `jax.tree`."""

from __future__ import annotations

import dataclasses
from typing import Any

from toile.tree_util import tree_all as all
from toile.tree_util import tree_broadcast as broadcast
from toile.tree_util import tree_flatten as flatten
from toile.tree_util import tree_flatten_with_path as flatten_with_path
from toile.tree_util import tree_leaves as leaves
from toile.tree_util import tree_leaves_with_path as leaves_with_path
from toile.tree_util import tree_map as map
from toile.tree_util import tree_map_with_path as map_with_path
from toile.tree_util import tree_reduce as reduce
from toile.tree_util import tree_reduce_associative as reduce_associative
from toile.tree_util import tree_structure as structure
from toile.tree_util import tree_transpose as transpose
from toile.tree_util import tree_unflatten as unflatten

__all__ = [
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map",
    "map_with_path", "reduce", "reduce_associative", "static", "structure", "transpose",
    "unflatten",
]  # fmt: skip


def static(**kwargs: object) -> Any:
    """Declare a dataclass field as part of the tree's structure rather than as a child.

    Args:
        kwargs: arguments of `dataclasses.field`, such as `default`.

    Returns:
        A field to assign to an attribute of a class that `toile.tree_util.register_dataclass`
        registers.

    >>> import dataclasses
    >>> @toile.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Dropout:
    ...     mask: toile.Array
    ...     rate: float = toile.tree.static(default=0.5)
    >>> len(toile.tree.leaves(Dropout(jnp.ones(3))))
    1
    """
    options: dict[str, Any] = {**kwargs}
    metadata = {"static": True, **(options.pop("metadata", None) or {})}
    return dataclasses.field(metadata=metadata, **options)
