"""toile as `jax`: what redirected code imports under that name."""

from toile.interop.faces import falls_back

# The release of JAX whose names and results toile has.
__version__ = "0.10.2"
__version_info__ = (0, 10, 2)

STANDS_FOR = "toile"

__getattr__ = falls_back(__name__, STANDS_FOR)
