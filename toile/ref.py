"""Mutable arrays: a Ref contains an array that can be replaced in whole or in part.

A Ref may be an argument of a transformed function, or a variable that the function uses: its value
becomes an additional argument, and its new value an additional result (`toile.engine.refs`).
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, IndexLike
from toile.engine.conversion import as_array, from_numpy
from toile.engine.refs import AbstractRef, Ref
from toile.engine.source import here

__all__ = ["AbstractRef", "Ref", "addupdate", "ds", "empty_ref", "free_ref", "freeze", "get",
           "new_ref", "set", "swap"]


class HasShapeAndDType(Protocol):
    """Protocol for objects with a shape and a dtype."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


def new_ref(init_val: ArrayLike, *, memory_space: object = None, kind: str | None = None) -> Ref:
    """Create an array that can be changed in place.

    Args:
        init_val: initial value. Changes to the Ref do not affect this array.
        memory_space: not used.
        kind: "no_grad_no_remat" for a Ref that is created outside a differentiated function and in
            which that function stores differentiated values. The Ref keeps these values without
            their derivatives. If `kind` is None, storing such a value raises an error.

    Returns:
        The Ref.

    >>> ref = toile.new_ref(jnp.zeros(3))
    >>> ref[1] = 5.0
    >>> ref[...]
    Array([0., 5., 0.], dtype=float32)
    """
    if isinstance(init_val, Ref):
        raise ValueError("new_ref: needed an array, got a Ref" + here())
    value: Any = init_val if isinstance(init_val, Array) else as_array(init_val)
    return Ref(value.astype(value.dtype) if value.weak_type else value, kind)


def empty_ref(ty: HasShapeAndDType, memory_space: object = None) -> Ref:
    """Create a Ref with a given shape and dtype, filled with zeros.

    Args:
        ty: any object with a `shape` and a `dtype`, such as a `ShapeDtypeStruct`.
        memory_space: not used.

    Returns:
        The Ref.

    >>> toile.empty_ref(toile.ShapeDtypeStruct((2,), jnp.float32))
    Ref([0., 0.], dtype=float32)
    """
    return Ref(from_numpy(np.zeros(ty.shape, dtypes.canonicalize_dtype(ty.dtype)), copy=False))


def freeze(ref: Ref) -> Array:
    """Return the array that a Ref contains.

    Args:
        ref: Ref to read, which must not be used afterward.

    Returns:
        An ordinary, immutable array.

    >>> toile.freeze(toile.new_ref(jnp.arange(3)))
    Array([0, 1, 2], dtype=int32)
    """
    return ref._read()


def free_ref(ref: Ref) -> None:
    """Release the array that a Ref contains; reading the Ref afterward raises an error.

    Args:
        ref: Ref to release.

    >>> ref = toile.new_ref(jnp.arange(3))
    >>> toile.free_ref(ref)
    """
    ref._free()


def get(ref: Ref, idx: IndexLike = None) -> Array:
    """Return elements of the array in a Ref.

    Args:
        ref: Ref to read.
        idx: index, as in `ref[idx]`; None for all elements.

    Returns:
        An array.
    """
    return ref[...] if idx is None else ref[idx]


def set(ref: Ref, idx: IndexLike, value: ArrayLike) -> None:
    """Replace elements of the array in a Ref.

    Args:
        ref: Ref to change.
        idx: index, as in `ref[idx]`; None for all elements.
        value: new elements: a scalar, or an array with the shape that the index selects.
    """
    ref[... if idx is None else idx] = value


def swap(ref: Ref, idx: IndexLike, value: ArrayLike) -> Array:
    """Replace elements of the array in a Ref, and return the old elements.

    Args:
        ref: Ref to change.
        idx: index, as in `ref[idx]`; None for all elements.
        value: new elements: a scalar, or an array with the shape that the index selects.

    Returns:
        The elements before the change.

    >>> ref = toile.new_ref(jnp.arange(3))
    >>> toile.ref.swap(ref, 0, 7), ref[...]
    (Array(0, dtype=int32), Array([7, 1, 2], dtype=int32))
    """
    old = get(ref, idx)
    set(ref, idx, value)
    return old


def addupdate(ref: Ref, idx: IndexLike, x: ArrayLike) -> None:
    """Add a value to elements of the array in a Ref.

    Args:
        ref: Ref to change.
        idx: index, as in `ref[idx]`; None for all elements.
        x: value to add: a scalar, or an array with the shape that the index selects.
    """
    ref.addupdate(x, ... if idx is None else idx)


def ds(
    start: int | Array | None, size: int | None = None, stride: int | None = None
) -> slice | Array:
    """Return an index that selects a given number of elements; the start may be a traced value.

    `ds(size)` selects the first `size` elements, and `ds(None)` selects all elements.

    Args:
        start: index of the first element; None for all elements. If `size` is None, `start` is the
            number of elements instead.
        size: number of elements.
        stride: distance between elements; 1 by default.

    Returns:
        A slice, or an array of indices if `start` is an array.

    >>> x = jnp.arange(10)
    >>> x[toile.ds(2, 3)]
    Array([2, 3, 4], dtype=int32)
    >>> x[toile.ds(jnp.array(4), 2)]
    Array([4, 5], dtype=int32)
    """
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    step = 1 if stride is None else stride
    if isinstance(start, int):
        return slice(start, start + (size - 1) * step + 1 if size else start, step)
    return start + as_array(np.arange(0, size * step, step, dtype=np.int32))
