"""Whole trees in place of arrays: arithmetic, dtypes, random leaves, and what states contain."""
# ruff: noqa: F403, F405

from toile.optim.tree.casting import cast, cast_like, dtype
from toile.optim.tree.maths import *
from toile.optim.tree.sampling import random_like, split_key_like, unwrap_random_key_data
from toile.optim.tree.states import NamedTupleKey, get, get_all_with_path, map_params, set

__all__ = [
    "NamedTupleKey", "add", "add_scale", "allclose", "batch_shape", "bias_correction", "cast",
    "cast_like", "clip", "conj", "div", "dtype", "full_like", "get", "get_all_with_path",
    "map_params", "max", "min", "mul", "norm", "ones_like", "random_like", "real", "scale", "set",
    "size", "split_key_like", "sub", "sum", "unwrap_random_key_data", "update_infinity_moment",
    "update_moment", "update_moment_per_elem_norm", "vdot", "where", "zeros_like",
]  # fmt: skip
