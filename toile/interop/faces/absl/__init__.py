"""`absl` for redirected code: the installed one, with `flags` of our own."""

from toile.interop.faces import falls_back
from toile.interop.faces.absl import flags

__all__ = ["flags"]

STANDS_FOR = "absl"

__getattr__ = falls_back(__name__, STANDS_FOR)
