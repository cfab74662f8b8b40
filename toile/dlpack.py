"""Arrays shared with other libraries through DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import ConcreteArray
from toile.engine.conversion import from_numpy, wrap
from toile.engine.platform_registry import shared
from toile.engine.source import here

__all__ = ["from_dlpack", "is_supported_dtype", "to_dlpack"]

_KINDS = frozenset("biufc")


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """An array with the data of any object that supports DLPack."""
    if isinstance(external_array, ConcreteArray):
        return external_array
    if not hasattr(external_array, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: needed an object with __dlpack__, got {type(external_array).__name__} "
            "(a capsule has lost its device; pass the array itself)" + here()
        )
    elsewhere = shared(external_array)
    if elsewhere is not None:
        return wrap(elsewhere)
    return from_numpy(np.from_dlpack(external_array))


def to_dlpack(x: Any, stream: Any = None, src_device: Any = None, dl_device: Any = None,
              max_version: Any = None, copy: bool | None = None) -> Any:
    """A DLPack capsule of an array, for libraries that accept nothing else."""
    if not isinstance(x, ConcreteArray):
        raise TypeError(f"to_dlpack: needed an array, got {type(x).__name__}{here()}")
    return x.__dlpack__()


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of a dtype can be shared through DLPack."""
    found = np.dtype(dtype)
    return (found.isbuiltin == 1 and found.kind in _KINDS) or found == dtypes.bfloat16
