"""The functions in `toile.optim.tree` under longer names, such as `tree_add` and `tree_norm`."""

import functools

from toile.optim import tree
from toile.optim.tree import NamedTupleKey as NamedTupleKey

tree_add, tree_add_scale, tree_allclose = tree.add, tree.add_scale, tree.allclose
tree_batch_shape, tree_bias_correction = tree.batch_shape, tree.bias_correction
tree_cast, tree_cast_like, tree_clip = tree.cast, tree.cast_like, tree.clip
tree_conj, tree_div, tree_dtype = tree.conj, tree.div, tree.dtype
tree_full_like, tree_get = tree.full_like, tree.get
tree_get_all_with_path, tree_map_params = tree.get_all_with_path, tree.map_params
tree_max, tree_min, tree_mul, tree_norm = tree.max, tree.min, tree.mul, tree.norm
tree_ones_like, tree_random_like, tree_real = tree.ones_like, tree.random_like, tree.real
tree_scale, tree_set, tree_size = tree.scale, tree.set, tree.size
tree_split_key_like, tree_sub, tree_sum = tree.split_key_like, tree.sub, tree.sum
tree_unwrap_random_key_data = tree.unwrap_random_key_data
tree_update_infinity_moment = tree.update_infinity_moment
tree_update_moment = tree.update_moment
tree_update_moment_per_elem_norm, tree_vdot = tree.update_moment_per_elem_norm, tree.vdot
tree_where, tree_zeros_like = tree.where, tree.zeros_like
# Their older names.
tree_scalar_mul, tree_add_scalar_mul = tree.scale, tree.add_scale

tree_l1_norm = functools.partial(tree.norm, ord=1)
tree_l2_norm = functools.partial(tree.norm, ord=2)
tree_linf_norm = functools.partial(tree.norm, ord="inf")
_TEXT = "Compute the {} of all elements of a tree; this is `tree_norm` with a fixed `ord`."
tree_l1_norm.__doc__ = _TEXT.format("sum of the absolute values")
tree_l2_norm.__doc__ = _TEXT.format("Euclidean norm")
tree_linf_norm.__doc__ = _TEXT.format("largest absolute value")
