"""Experimental parts of JAX's interface; errors for missing ones say what to use instead."""

from toile import _absent
from toile.api.callbacks import io_callback
from toile.engine.config import Override, enable_x64
from toile.engine.lazy import attach as _attach

__all__ = ["disable_x64", "enable_x64", "io_callback"]

_MODULES = ("checkify compilation_cache jet key_reuse layout mesh_utils multihost_utils ode pjit "
            "shard_map")
__getattr__, __dir__ = _attach(__name__, {}, _MODULES, _absent.missing_attribute)


def disable_x64() -> Override:
    """Context manager under which 64-bit types are narrowed."""
    return enable_x64(False)
