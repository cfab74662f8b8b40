"""`jax.experimental.array_serialization`: the interface of checkpoint managers."""

from toile.compat.faces.jax.experimental.array_serialization import serialization

__all__ = ["serialization"]
