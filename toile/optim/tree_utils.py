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
_TEXT = "Compute the {} of all elements of a tree: `tree_norm` with that `ord`; see there."
tree_l1_norm.__doc__ = _TEXT.format("sum of the absolute values")
tree_l2_norm.__doc__ = _TEXT.format("Euclidean norm")
tree_linf_norm.__doc__ = _TEXT.format("largest absolute value")

__all__ = [  # noqa: PLE0604
    *_long,
    *("NamedTupleKey", "tree_add_scalar_mul", "tree_l1_norm", "tree_l2_norm", "tree_linf_norm"),
    "tree_scalar_mul",
]
