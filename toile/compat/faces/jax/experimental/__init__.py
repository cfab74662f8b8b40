"""`jax.experimental`: toile's modules of that name, and what only packages import."""

from toile.interop.lookup import fallback_to

STANDS_FOR = "toile.experimental"

__getattr__ = fallback_to(__name__, STANDS_FOR)
