"""`jax._src.state`: references to arrays."""

from toile.compat.faces.jax._src.state import types

__all__ = ["types"]
