"""Types for the annotations of public functions.

`ArrayLike` is anything that functions accept as an array, `DTypeLike` anything that names a dtype,
`ShapeLike` a shape, `AxisLike` one axis, several axes or all of them (None), and `IndexLike` what
is between the brackets of `x[...]`. `PyTree` is any tree of values; type checkers cannot check its
leaves. `toile.typing` has the names that users need.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias, runtime_checkable

import numpy as np

from toile.engine.trace import Array


@runtime_checkable
class HasDType(Protocol):
    """Anything with a dtype, such as an array or `jnp.float32`."""

    @property
    def dtype(self) -> np.dtype: ...


ArrayLike: TypeAlias = (
    Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
)
DTypeLike: TypeAlias = str | type[Any] | np.dtype | HasDType
ShapeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
AxisLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
IndexLike: TypeAlias = ArrayLike | slice | EllipsisType | Sequence[Any] | None
PyTree: TypeAlias = Any
