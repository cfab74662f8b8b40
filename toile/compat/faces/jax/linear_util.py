"""`jax.linear_util`, which is `jax.extend.linear_util` in newer versions of JAX."""

from toile.compat.faces.jax.extend.linear_util import (
    StoreException,
    WrappedFun,
    merge_linear_aux,
    transformation,
    transformation_with_aux,
    wrap_init,
)

__all__ = [
    "StoreException", "WrappedFun", "merge_linear_aux", "transformation",
    "transformation_with_aux", "wrap_init",
]
