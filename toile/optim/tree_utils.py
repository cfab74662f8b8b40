"""The functions of `toile.optim.tree` under their long names: tree_add, tree_norm, ..."""

import functools

from toile.optim import tree
from toile.optim.tree import NamedTupleKey  # noqa: F401

_long = {f"tree_{name}": getattr(tree, name) for name in tree.__all__ if name[0].islower()}
globals().update(_long)

tree_scalar_mul = tree.scale
tree_add_scalar_mul = tree.add_scale
tree_l1_norm = functools.partial(tree.norm, ord=1)
tree_l2_norm = functools.partial(tree.norm, ord=2)
tree_linf_norm = functools.partial(tree.norm, ord="inf")
for _norm, _what in (
    (tree_l1_norm, "sum of the absolute values"), (tree_l2_norm, "Euclidean norm"),
    (tree_linf_norm, "largest absolute value"),
):
    _norm.__doc__ = f"""Compute the {_what} of all elements of all leaves together.

Args:
    tree: tree of arrays.
    ord: order of the norm, which is set already.
    squared: whether to return the square of the result.

Returns:
    A real scalar.
"""

__all__ = [  # noqa: PLE0604
    *_long,
    *("NamedTupleKey", "tree_add_scalar_mul", "tree_l1_norm", "tree_l2_norm", "tree_linf_norm"),
    "tree_scalar_mul",
]
