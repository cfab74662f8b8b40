"""`jax._src.state.types`: the type of a reference to an array."""

from toile.ref import AbstractRef

__all__ = ["AbstractRef"]
