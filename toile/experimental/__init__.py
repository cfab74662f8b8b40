"""Experimental parts of JAX's interface; what toile has not says what to use instead."""

import importlib
from typing import Any

from toile import _absent
from toile.api.callbacks import io_callback
from toile.engine.config import Override, enable_x64

__all__ = ["disable_x64", "enable_x64", "io_callback"]

_LAZY = ("checkify", "compilation_cache", "layout", "mesh_utils", "multihost_utils", "pjit",
         "shard_map")


def disable_x64() -> Override:
    """Context manager under which 64-bit types are narrowed."""
    return enable_x64(False)


def __getattr__(name: str) -> Any:
    """Submodules are loaded when they are first used."""
    if name in _LAZY:
        return importlib.import_module(f"toile.experimental.{name}")
    raise _absent.missing_attribute("toile.experimental", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
