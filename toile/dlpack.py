"""Share arrays with other libraries through DLPack."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, DTypeLike
from toile.engine.arrays import ConcreteArray
from toile.engine.conversion import from_numpy, wrap
from toile.engine.devices import Device
from toile.engine.platform_registry import shared
from toile.engine.source import here
from toile.numpy.creation import asarray

__all__ = ["from_dlpack", "is_supported_dtype", "to_dlpack"]

_KINDS = frozenset("biufc")


class SupportsDLPack(Protocol):
    """Protocol for arrays of libraries that support DLPack."""

    def __dlpack__(self, *, stream: None = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...


def from_dlpack(
    external_array: SupportsDLPack, device: Device | None = None, copy: bool | None = None
) -> Array:
    """Create an array from another library's array, using DLPack.

    Values in host memory are copied. On a GPU, the result shares memory with the other library's
    array.

    Args:
        external_array: object with the methods `__dlpack__` and `__dlpack_device__`. A toile array
            is returned unchanged.
        device: device for the result; if None, the values stay where they are.
        copy: whether to copy the values even if they could be shared.

    Returns:
        The array. Unless `enable_x64` is on, 64-bit values are converted to 32-bit values.

    Raises:
        TypeError: the object does not support DLPack. As in JAX, capsules are not accepted.

    >>> import numpy as np
    >>> toile.dlpack.from_dlpack(np.arange(3, dtype="int32"))
    Array([0, 1, 2], dtype=int32)
    """
    if isinstance(external_array, ConcreteArray):
        return asarray(external_array, copy=copy, device=device)
    if not hasattr(external_array, "__dlpack__"):
        raise TypeError(
            f"from_dlpack: needed an object with __dlpack__, got {type(external_array).__name__} "
            "(a capsule does not name its device; pass the array itself)" + here()
        )
    elsewhere = shared(external_array)
    if elsewhere is not None:
        return asarray(wrap(elsewhere), copy=copy, device=device)
    return asarray(from_numpy(np.from_dlpack(external_array)), copy=copy, device=device)


def to_dlpack(
    x: Array, stream: int | None = None, src_device: Device | None = None,
    dl_device: tuple[int, int] | None = None, max_version: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a DLPack capsule of an array, for use with libraries that accept only capsules.

    Most libraries accept the array itself, as in `torch.from_dlpack(x)`.

    Args:
        x: array.
        stream, src_device, dl_device, max_version, copy: not used.

    Returns:
        The capsule, which can be consumed only once. It shares memory with the array.

    Raises:
        TypeError: `x` is not a toile array.
    """
    if not isinstance(x, ConcreteArray):
        raise TypeError(f"to_dlpack: needed an array, got {type(x).__name__}{here()}")
    return x.__dlpack__()


def is_supported_dtype(dtype: DTypeLike) -> bool:
    """Test whether arrays of a dtype can be shared through DLPack.

    Args:
        dtype: the dtype.

    Returns:
        True for booleans, bfloat16, and NumPy's integer, float and complex dtypes.
    """
    found = np.dtype(dtype)
    return (found.isbuiltin == 1 and found.kind in _KINDS) or found == dtypes.bfloat16
