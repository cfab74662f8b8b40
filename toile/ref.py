"""Mutable arrays: a Ref contains an array that can be replaced in whole or in part.

A Ref belongs to the trace in which it was created. A jitted function may create a Ref and use it,
but it can neither read nor write a Ref that was created outside it: the compiled program would
contain the value that the Ref had during tracing, and the program's changes to the Ref would be
lost.
"""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, Protocol

import numpy as np

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, IndexLike
from toile.engine.avals import Aval
from toile.engine.conversion import as_array, from_numpy
from toile.engine.source import here
from toile.engine.trace import state

__all__ = ["AbstractRef", "Ref", "addupdate", "ds", "empty_ref", "free_ref", "freeze", "get",
           "new_ref", "set", "swap"]


class HasShapeAndDType(Protocol):
    """Protocol for objects with a shape and a dtype."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


class AbstractRef:
    """The type of a Ref: the shape and dtype of the array that it contains.

    Args:
        inner_aval: shape and dtype of the array.
        memory_space: not used.
        kind: not used.
    """

    def __init__(self, inner_aval: Aval, memory_space: Any = None, kind: Any = None):
        self.inner_aval, self.memory_space, self.kind = inner_aval, memory_space, kind

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.inner_aval.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the array."""
        return self.inner_aval.dtype

    @property
    def weak_type(self) -> bool:
        """False: the array keeps its dtype."""
        return False

    @property
    def ndim(self) -> int:
        """The number of axes of the array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return math.prod(self.shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self.inner_aval == other.inner_aval

    def __hash__(self) -> int:
        return hash(("ref", self.inner_aval))

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval.str_short()}}}"


class Ref:
    """An array that can be changed in place, as created by `new_ref`.

    `ref[...]` reads the whole array, and `ref[index] = value` replaces elements, as in NumPy. A Ref
    that was created inside a transformed function can be changed only there, and a Ref that was
    created outside all transformed functions can be changed only outside them. A jitted function
    cannot even read a Ref that was created outside it.

    Args:
        value: initial array.
    """

    __slots__ = ("_value", "_trace", "__weakref__")

    def __init__(self, value: Any):
        self._value, self._trace = value, state.trace

    def _read(self) -> Any:
        value = self._value
        if value is None:
            raise RuntimeError("Ref: needed a live reference, got one that was freed" + here())
        trace = state.trace
        if trace is not self._trace and trace is not None and trace.staging:
            raise NotImplementedError(
                "Ref: needed a reference made in this traced function, got one from outside (pass "
                "its value in and return the new one)" + here()
            )
        return value

    def _write(self, value: Any) -> None:
        if state.trace is not self._trace:
            raise NotImplementedError(
                "Ref: needed a reference made in this transformed function, got one from outside "
                "(pass its value in and return the new one)" + here()
            )
        self._value = value

    def _fitting(self, new: Any, old: Any, what: str) -> Any:
        new = new if isinstance(new, Array) else as_array(new)
        if new.dtype != old.dtype and not new.weak_type:
            raise ValueError(f"Invalid dtype for `{what}`. Ref dtype: {old.dtype}. Value dtype: "
                             f"{new.dtype}.{here()}")
        if new.shape != old.shape and new.shape != ():
            raise ValueError(f"Invalid shape for `{what}`. Ref shape: {self.shape}. Expected "
                             f"shape: {old.shape}. Value shape: {new.shape}.{here()}")
        return new.astype(old.dtype)

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        whole = self._read()
        value = self._fitting(value, whole[index], "swap")
        self._write(whole.at[index].set(value))

    def addupdate(self, x: ArrayLike, idx: IndexLike = ()) -> None:
        """Add a value to the elements at an index.

        Args:
            x: value to add: a scalar, or an array with the shape that the index selects.
            idx: index, as in `ref[idx]`; `()` for all elements.
        """
        whole = self._read()
        x = self._fitting(x, whole[idx], "addupdate")
        self._write(whole.at[idx].add(x))

    @property
    def aval(self) -> AbstractRef:
        """The shape and dtype of the array, as an `AbstractRef`."""
        return AbstractRef(self._value.aval)

    shape = property(attrgetter("_value.shape"), doc="The sizes of the axes.")
    dtype = property(attrgetter("_value.dtype"), doc="The type of the elements.")
    ndim = property(attrgetter("_value.ndim"), doc="The number of axes.")
    size = property(attrgetter("_value.size"), doc="The number of elements.")
    sharding = property(attrgetter("_value.sharding"), doc="How the array is divided.")

    def __len__(self) -> int:
        return len(self._value)

    def __repr__(self) -> str:
        return "Ref" + repr(self._value).removeprefix("Array")


def new_ref(init_val: ArrayLike, *, memory_space: object = None, kind: str | None = None) -> Ref:
    """Create an array that can be changed in place.

    Args:
        init_val: initial value. Changes to the Ref do not affect this array.
        memory_space: not used.
        kind: not used.

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
    return Ref(value.astype(value.dtype) if value.weak_type else value)


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
    ref._write(None)


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
