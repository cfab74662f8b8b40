"""ShapeDtypeStruct: a shape and a dtype that represent an array in the public API.

This module may import engine.annotations, engine.dtypes and engine.source.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from toile.engine import dtypes
from toile.engine.source import here

if TYPE_CHECKING:
    from toile.engine.annotations import DTypeLike

# Attributes by which shardings, formats and partition specs (from a higher layer) are recognized.
_PLACING = ("device_set", "layout", "unreduced")


class ShapeDtypeStruct:
    """The shape, the dtype and other properties of an array, without its values.

    `toile.eval_shape` returns such objects. Functions that do not need values, such as `lower` and
    `eval_shape`, accept them instead of arrays. These objects are immutable; `update` returns a
    changed copy.

    Args:
        shape: sizes of the axes.
        dtype: type of the elements.
        sharding: how the array is divided among devices: a sharding, a partition spec or a format.
            It is None if the sharding is unknown.
        weak_type: whether the dtype adapts to the dtypes of other operands, as the dtype of a
            Python number does.
        vma: names of the mesh axes along which the value differs between devices; stored, but not
            used.
        is_ref: whether the object describes a Ref, which is a mutable array.

    >>> toile.eval_shape(jnp.matmul, toile.ShapeDtypeStruct((2, 3), "float32"), jnp.ones((3, 5)))
    ShapeDtypeStruct(shape=(2, 5), dtype=float32)
    """

    __slots__ = ("shape", "dtype", "sharding", "weak_type", "is_ref", "vma")
    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    weak_type: bool
    is_ref: bool
    vma: Any

    def __init__(self, shape: Sequence[int], dtype: DTypeLike, *, sharding: Any = None,
                 weak_type: bool = False, vma: frozenset[str] | None = None, is_ref: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified")
        if sharding is not None and not any(hasattr(type(sharding), name) for name in _PLACING):
            raise ValueError(
                "sharding should be an instance of `toile.sharding.Sharding`, "
                "`toile.sharding.PartitionSpec` or `toile.experimental.layout.Format`. Got "
                f"{sharding} of type {type(sharding)}.{here()}"
            )
        put = object.__setattr__
        put(self, "shape", tuple(shape))
        put(self, "dtype", dtype if dtypes.is_extended(dtype) else np.dtype(dtype))
        put(self, "sharding", sharding)
        put(self, "weak_type", weak_type)
        put(self, "is_ref", is_ref)
        put(self, "vma", vma)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """Describe an array, a number or another ShapeDtypeStruct.

        Args:
            x: value to describe.

        Returns:
            A ShapeDtypeStruct with the shape, the dtype and the weak type of `x`. It has the
            sharding of `x` if `x` is divided among devices.

        >>> toile.ShapeDtypeStruct.like(jnp.ones((2, 3)))
        ShapeDtypeStruct(shape=(2, 3), dtype=float32)
        """
        number = isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic))
        sharding = getattr(x, "sharding", None)
        divided = isinstance(x, ShapeDtypeStruct) or hasattr(sharding, "mesh")
        return cls(np.shape(x), dtypes.dtype(x, canonicalize=True),
                   sharding=sharding if divided else None,
                   weak_type=bool(getattr(x, "weak_type", number)))

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(
            f"Cannot reassign attributes ({name}) of immutable ShapeDtypeStruct objects: needed a "
            f"new one (write `s.update({name}=value)`){here()}"
        )

    def __reduce__(self) -> Any:
        kept = {name: getattr(self, name) for name in ("sharding", "weak_type", "vma", "is_ref")}
        return functools.partial(type(self), **kept), (self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def format(self) -> Any:
        """None, because the order of the axes in memory is unknown."""
        return None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """Return a copy with some attributes replaced.

        Args:
            **changes: new values for `shape`, `dtype`, `sharding`, `weak_type` or `vma`; other
                names are ignored.

        Returns:
            A new ShapeDtypeStruct.
        """
        shape = changes.get("shape", self.shape)
        dtype = changes.get("dtype", self.dtype)
        kept = {"sharding": self.sharding, "weak_type": self.weak_type, "vma": self.vma}
        kept.update((name, changes[name]) for name in kept if name in changes)
        return ShapeDtypeStruct(shape, dtype, **kept)

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
