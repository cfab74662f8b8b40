"""`absl` for redirected code: the installed one, with toile's own `flags`."""

from toile.interop.faces import fallback_to
from toile.interop.faces.absl import flags

__all__ = ["flags"]

STANDS_FOR = "absl"

__getattr__ = fallback_to(__name__, STANDS_FOR)
