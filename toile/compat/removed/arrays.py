"""Functions and types of arrays that JAX has removed: indexed updates, `tie_in`, `shuffle`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile import dtypes, lax, random, tree_util
from toile import numpy as jnp
from toile.engine.conversion import leaving
from toile.engine.source import here
from toile.engine.trace import Array, Tracer
from toile.numpy._promotion import promote_dtypes

__all__ = [
    "DeviceArray", "NINF", "NZERO", "PZERO", "alltrue", "asscalar", "canonicalize_dtype",
    "concrete_or_error", "cumproduct", "fix", "hash_of_number", "in1d", "index", "index_add",
    "index_max", "index_min", "index_mul", "index_update", "issubsctype", "msort", "pdot",
    "product", "promote_dtypes", "round_", "row_stack", "shaped_identity", "shuffle",
    "sometrue", "tie_in", "trapz", "tree_multimap",
]

DeviceArray = Array
NINF, NZERO, PZERO = -np.inf, -0.0, 0.0
alltrue, sometrue, product, cumproduct = jnp.all, jnp.any, jnp.prod, jnp.cumprod
row_stack, in1d, trapz, round_, fix = jnp.vstack, jnp.isin, jnp.trapezoid, jnp.round, jnp.trunc
canonicalize_dtype = dtypes.canonicalize_dtype


def msort(a: Any) -> Any:
    """Sort along the first axis."""
    return jnp.sort(a, axis=0)


def asscalar(a: Any) -> Any:
    """The only element of an array, as a Python number."""
    return a.item()


def issubsctype(arg1: Any, arg2: Any) -> bool:
    """Whether the dtype of the first argument is a subtype of that of the second."""
    return bool(jnp.issubdtype(jnp.dtype(arg1), arg2))


def tree_multimap(f: Callable[..., Any], tree: Any, *rest: Any,
                  is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`tree_map` of a function of several trees."""
    return tree_util.tree_map(f, tree, *rest, is_leaf=is_leaf)


class _Index:
    """Gives what stands in the brackets: `index[1:3, 0]` is `(slice(1, 3), 0)`."""

    def __getitem__(self, key: Any) -> Any:
        return key


index = _Index()


def _updater(method: str) -> Callable[..., Any]:
    def update(x: Any, idx: Any, y: Any, indices_are_sorted: bool = False,
               unique_indices: bool = False) -> Any:
        return getattr(jnp.asarray(x).at[idx], method)(
            y, indices_are_sorted=indices_are_sorted, unique_indices=unique_indices)

    update.__name__ = "index_update" if method == "set" else f"index_{method}"
    update.__doc__ = f"`x.at[idx].{method}(y)`: a copy of `x` with changed elements."
    return update


index_update, index_add, index_mul = map(_updater, ("set", "add", "mul"))
index_min, index_max = map(_updater, ("min", "max"))


def tie_in(x: Any, y: Any) -> Any:
    """`y`; all operations are staged where they are called."""
    return y


def shaped_identity(x: Any) -> Any:
    """`x`."""
    return x


def pdot(x: Any, y: Any, axis_name: Any, pos_contract: Any = ((), ()),
         pos_batch: Any = ((), ()), precision: Any = None) -> Any:
    """A product of arrays, summed over the mapped axis `axis_name` too."""
    return lax.psum(lax.dot_general(x, y, (pos_contract, pos_batch), precision=precision),
                    axis_name)


def shuffle(key: Any, x: Any, axis: int = 0) -> Any:
    """The elements in random order, along one axis."""
    return random.permutation(key, x, axis, independent=True)


def hash_of_number(x: Any) -> int:
    """The hash of an array with one element, so that it finds keys of a dict that are numbers."""
    if x.size != 1:
        raise TypeError(
            f"unhashable array: needed one element, got {x.size} (use x.tolist()){here()}")
    return hash(x.item())


def concrete_or_error(force: Any, val: Any, context: str = "") -> Any:
    """`force(val)` of a value that is known while functions are traced; `force` may be None."""
    if isinstance(val, Tracer) and val.concrete() is None:
        raise TypeError(
            f"needed a value that is known while the function is traced, got {val}. {context} "
            f"(pass it as a static argument){here()}"
        )
    return leaving(val) if force is None else force(val)
