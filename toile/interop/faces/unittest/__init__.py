"""`unittest` for redirected code: the standard one, with toile's own `mock`."""

from toile.interop.faces import fallback_to
from toile.interop.faces.unittest import mock

__all__ = ["mock"]

STANDS_FOR = "unittest"

__getattr__ = fallback_to(__name__, STANDS_FOR)
