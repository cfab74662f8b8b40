"""`jax.interpreters`: tables of rules for primitives defined outside JAX."""

from toile.compat.faces.jax.interpreters import ad, batching, mlir, partial_eval, pxla, xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "pxla", "xla"]
