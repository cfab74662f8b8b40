"""`jax.lib.xla_extension`: the error of compiled code."""

from toile.engine.errors import JaxRuntimeError

XlaRuntimeError = JaxRuntimeError

__all__ = ["JaxRuntimeError", "XlaRuntimeError"]
