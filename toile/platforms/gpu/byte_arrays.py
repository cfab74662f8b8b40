"""CuPy arrays of dtypes that CuPy does not have: float8, and integers of less than 8 bits.

CuPy sees such an array as bytes; its `dtype` says what the bytes mean. This module may import
targets.cuda.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from toile.targets.cuda.presence import cupy

BYTES = np.dtype("uint8")
_OF_PACKAGES = 256  # NumPy numbers dtypes that other packages add from here on


def has_dtype(dtype: Any) -> bool:
    """Whether CuPy has arrays of a dtype."""
    return dtype.num < _OF_PACKAGES or dtype.name == "bfloat16"


@functools.cache
def byte_array() -> Any:
    """The class of arrays that consist of bytes for CuPy."""
    plain: Any = cupy().ndarray

    class ByteArray(plain):
        """A CuPy array of bytes that remembers their dtype; so do its parts and copies."""

        def __array_finalize__(self, source: Any) -> None:
            self._meaning = getattr(source, "_meaning", BYTES)

        @property
        def dtype(self) -> Any:
            return self._meaning

        def get(self, *args: Any, **kwargs: Any) -> Any:
            return super().get(*args, **kwargs).view(self._meaning)

        @property
        def __cuda_array_interface__(self) -> Any:
            raise AttributeError(_cannot_share(self._meaning))

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError(_cannot_share(self._meaning))

    ByteArray.__module__ = "cupy"  # platforms recognize the classes of their buffers by module
    return ByteArray


def _cannot_share(dtype: Any) -> str:
    return (f"an array on a GPU: needed a dtype that other libraries read, got {dtype} (share its "
            "bytes: lax.bitcast_convert_type(x, jnp.uint8))")


def new_array(shape: tuple[int, ...], dtype: Any, memory: Any, xp: Any) -> Any:
    """An array of a dtype at a CuPy memory pointer; `xp` is CuPy."""
    if has_dtype(dtype):
        return xp.ndarray(shape, dtype, memory)
    return viewed(xp.ndarray(shape, BYTES, memory), dtype)


def viewed(data: Any, dtype: Any) -> Any:
    """The bits of an array as another dtype of the same size."""
    if hasattr(data, "_meaning"):
        data = data.view(cupy().ndarray)
    if has_dtype(dtype):
        return data.view(dtype)
    made = data.view(BYTES).view(byte_array())
    made._meaning = dtype
    return made
