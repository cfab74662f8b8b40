"""`jax.lib`: the few names of it that packages use."""

from toile.compat.faces.jax.lib import xla_bridge, xla_extension
from toile.compat.faces.jaxlib import __version__

__all__ = ["__version__", "xla_bridge", "xla_extension"]
