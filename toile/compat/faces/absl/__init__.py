"""`absl` for redirected code: the installed package, with toile's own `flags`."""

from toile.compat.faces.absl import flags
from toile.interop.lookup import fallback_to

__all__ = ["flags"]

STANDS_FOR = "absl"

__getattr__ = fallback_to(__name__, STANDS_FOR)
