"""`jax.linear_util`, which is `jax.extend.linear_util` in newer versions of JAX."""

from toile.compat.faces.jax.extend.linear_util import WrappedFun, transformation, wrap_init

__all__ = ["WrappedFun", "transformation", "wrap_init"]
