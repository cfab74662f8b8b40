"""`jax.lib.xla_client`: the names of it that programs use in annotations and handlers."""

from toile.compat.faces.jax.extend.backend import Backend as Client
from toile.engine.devices import Device
from toile.engine.errors import JaxRuntimeError as XlaRuntimeError

__all__ = ["Client", "Device", "XlaRuntimeError"]
