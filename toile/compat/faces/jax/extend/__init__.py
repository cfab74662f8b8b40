"""`jax.extend`: what packages that bring primitives of their own use."""

from toile.compat.faces.jax.extend import core, linear_util

__all__ = ["core", "linear_util"]
