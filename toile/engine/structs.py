"""ShapeDtypeStruct: a shape and a dtype that stand for an array at the API's edge.

May import engine.dtypes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from toile.engine import dtypes


class ShapeDtypeStruct:
    """Shape, dtype and other static facts of an array, without one."""

    __slots__ = ("shape", "dtype", "sharding", "weak_type", "is_ref", "vma")

    def __init__(self, shape: Any, dtype: Any, *, sharding: Any = None, weak_type: bool = False,
                 vma: Any = None, is_ref: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified")
        self.shape = tuple(shape)
        self.dtype = dtype if dtypes.is_extended(dtype) else np.dtype(dtype)
        self.sharding, self.weak_type = sharding, weak_type
        self.is_ref, self.vma = is_ref, vma

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def format(self) -> Any:
        return None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with some fields replaced."""
        shape = changes.pop("shape", self.shape)
        dtype = changes.pop("dtype", self.dtype)
        kept = {"sharding": self.sharding, "weak_type": self.weak_type, "vma": self.vma}
        return ShapeDtypeStruct(shape, dtype, **{**kept, **changes})

    def __repr__(self) -> str:
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        weak = ", weak_type=True" if self.weak_type else ""
        return (
            f"ShapeDtypeStruct(shape={self.shape}, dtype={dtypes.name_of(self.dtype)}"
            f"{sharding}{weak})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ShapeDtypeStruct):
            return False
        return (self.shape, self.dtype, self.sharding, self.weak_type) == (
            other.shape, other.dtype, other.sharding, other.weak_type,
        )

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype, self.sharding, self.weak_type))
