"""Trees of parameters."""
import toile
import toile.numpy as jnp
from toile import tree_util
from toile.traverse_util import flatten_dict, unflatten_dict

params = {"dense": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}}
doubled = toile.tree.map(lambda x: 2 * x, params)
count = sum(x.size for x in toile.tree.leaves(params))
leaves, structure = tree_util.tree_flatten(params)
again = tree_util.tree_unflatten(structure, leaves)
flat = flatten_dict(params, sep="/")
nested = unflatten_dict(flat, sep="/")
named = tree_util.tree_map_with_path(lambda path, x: (tree_util.keystr(path), x.shape), params)
