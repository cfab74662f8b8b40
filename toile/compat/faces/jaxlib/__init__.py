"""toile as `jaxlib`: its version, and the error of compiled code."""

__version__ = "0.10.2"

STANDS_FOR = "toile.compat.faces.jax.lib"
