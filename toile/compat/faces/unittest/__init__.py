"""`unittest` for redirected code: the standard module, with toile's own `mock`."""

from toile.compat.faces.unittest import mock
from toile.interop.lookup import fallback_to

__all__ = ["mock"]

STANDS_FOR = "unittest"

__getattr__ = fallback_to(__name__, STANDS_FOR)
