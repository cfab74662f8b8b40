"""`jaxlib.xla_extension`: the error of compiled code."""

from toile.compat.faces.jax.lib.xla_extension import JaxRuntimeError, XlaRuntimeError

__all__ = ["JaxRuntimeError", "XlaRuntimeError"]
