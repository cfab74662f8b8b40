"""`jax._src.xla_bridge`: the table of started XLA backends, which is empty."""

from typing import Any

_backends: dict[str, Any] = {}
