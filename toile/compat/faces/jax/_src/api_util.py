"""`jax._src.api_util`: the names of `jax.api_util`."""

from toile.compat.faces.jax.api_util import (
    flatten_fun,
    flatten_fun_nokwargs,
    infer_argnums_and_argnames,
    safe_map,
    shaped_abstractify,
)

__all__ = [
    "flatten_fun", "flatten_fun_nokwargs", "infer_argnums_and_argnames", "safe_map",
    "shaped_abstractify",
]
