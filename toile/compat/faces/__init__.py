"""toile under the names `jax` and `flax`, for redirected code.

There are two faces, because JAX and Flax use some names for different things (`core`, `config`,
`errors`, `__version__`). A face contains only what differs. Everything else is taken from toile:
`jax.numpy` is `toile.numpy` itself, so that classes and functions are the same objects on both
sides.
"""

from toile.interop.lookup import fallback_to, resolve

__all__ = ["fallback_to", "resolve"]
