"""Experimental parts of JAX's interface; errors for missing ones say what to use instead."""

from toile import _absent
from toile.api.callbacks import io_callback
from toile.engine.config import Override
from toile.engine.lazy import attach as _attach
from toile.engine.scoped_options import enable_x64

__all__ = ["disable_x64", "enable_x64", "io_callback"]

_MODULES = ("checkify compilation_cache jet key_reuse layout mesh_utils multihost_utils ode pjit "
            "shard_map")
__getattr__, __dir__ = _attach(__name__, {}, _MODULES, _absent.missing_attribute)


def disable_x64() -> Override:
    """Replace 64-bit dtypes by 32-bit ones: `enable_x64(False)`.

    Returns:
        A context manager, which can also decorate a function.
    """
    return enable_x64(False)
