"""Experimental parts of JAX's interface; errors for missing ones say what to use instead."""

from toile import _absent
from toile.engine.config import Override, enable_x64
from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _absent.missing_attribute)


def disable_x64() -> Override:
    """Context manager under which 64-bit types are narrowed."""
    return enable_x64(False)
