"""toile as `flax`: what redirected code imports under that name."""

from toile.configurations import config
from toile.interop.lookup import fallback_to

__all__ = ["config"]

# The release of Flax whose names and results toile has.
__version__ = "0.12.8"

STANDS_FOR = "toile"

__getattr__ = fallback_to(__name__, STANDS_FOR)
