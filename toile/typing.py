"""Types for annotations: what may stand for an array, and for a dtype.

`ArrayLike` is anything the functions of `toile.numpy` accept for one array: arrays, NumPy arrays
and scalars, Python scalars; not lists. `DTypeLike` is anything that names a dtype.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from toile import numpy as jnp

__all__ = ["ArrayLike", "DTypeLike"]


@runtime_checkable
class _HasDType(Protocol):
    @property
    def dtype(self) -> np.dtype: ...


ArrayLike = jnp.ndarray | np.ndarray | np.bool_ | np.number | bool | int | float | complex

DTypeLike = str | type[Any] | np.dtype | _HasDType
