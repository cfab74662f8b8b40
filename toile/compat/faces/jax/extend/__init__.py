"""`jax.extend`: the parts used by packages that define their own primitives."""

from toile.compat.faces.jax.extend import core, linear_util

__all__ = ["core", "linear_util"]
