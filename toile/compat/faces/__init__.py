"""What redirected code sees as `jax` and as `flax`: toile, under their names.

JAX and Flax use some names for different things (`core`, `config`, `errors`, `__version__`), which
is why there are two faces. A face holds what differs; everything else is toile's: `jax.numpy` is
`toile.numpy` itself, so that classes and functions are the same objects on both sides.
"""

from toile.interop.lookup import fallback_to, resolve

__all__ = ["fallback_to", "resolve"]
