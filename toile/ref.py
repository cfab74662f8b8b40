"""Mutable arrays: a Ref holds an array and lets it be replaced, in whole or in part.

A Ref belongs to the trace it was made in: a jitted function may make and use its own, but one from
outside can be neither read nor written there, because its changes would be lost or baked in.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import Array
from toile.engine.avals import Aval
from toile.engine.conversion import as_array, from_numpy
from toile.engine.source import here
from toile.engine.trace import state

__all__ = ["AbstractRef", "Ref", "addupdate", "ds", "empty_ref", "free_ref", "freeze", "get",
           "new_ref", "set", "swap"]


class AbstractRef:
    """The type of a Ref: that of the array it holds."""

    def __init__(self, inner_aval: Aval, memory_space: Any = None, kind: Any = None):
        self.inner_aval, self.memory_space, self.kind = inner_aval, memory_space, kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self.inner_aval == other.inner_aval

    def __hash__(self) -> int:
        return hash(("ref", self.inner_aval))

    def __repr__(self) -> str:
        return f"Ref{{{self.inner_aval.str_short()}}}"


class Ref:
    """An array that can be changed in place; made by `new_ref`."""

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

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """Add to the entries at an index."""
        whole = self._read()
        x = self._fitting(x, whole[idx], "addupdate")
        self._write(whole.at[idx].add(x))

    @property
    def aval(self) -> AbstractRef:
        return AbstractRef(self._value.aval)

    shape = property(attrgetter("_value.shape"))
    dtype = property(attrgetter("_value.dtype"))
    ndim = property(attrgetter("_value.ndim"))
    size = property(attrgetter("_value.size"))
    sharding = property(attrgetter("_value.sharding"))

    def __len__(self) -> int:
        return len(self._value)

    def __repr__(self) -> str:
        return "Ref" + repr(self._value).removeprefix("Array")


def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """A mutable array with an initial value."""
    if isinstance(init_val, Ref):
        raise ValueError("new_ref: needed an array, got a Ref" + here())
    value: Any = init_val if isinstance(init_val, Array) else as_array(init_val)
    return Ref(value.astype(value.dtype) if value.weak_type else value)


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A mutable array of a shape and dtype, all zeros."""
    return Ref(from_numpy(np.zeros(ty.shape, dtypes.canonicalize_dtype(ty.dtype)), copy=False))


def freeze(ref: Ref) -> Any:
    """The array that a Ref holds; the Ref must not be used afterwards."""
    return ref._read()


def free_ref(ref: Ref) -> None:
    """Release the array that a Ref holds."""
    ref._write(None)


def get(ref: Ref, idx: Any = None) -> Any:
    """The entries of a Ref at an index (all by default)."""
    return ref[...] if idx is None else ref[idx]


def set(ref: Ref, idx: Any, value: Any) -> None:
    """Replace the entries of a Ref at an index."""
    ref[... if idx is None else idx] = value


def swap(ref: Ref, idx: Any, value: Any) -> Any:
    """Replace the entries of a Ref at an index; returns the old ones."""
    old = get(ref, idx)
    set(ref, idx, value)
    return old


def addupdate(ref: Ref, idx: Any, x: Any) -> None:
    """Add to the entries of a Ref at an index."""
    ref.addupdate(x, ... if idx is None else idx)


def ds(start: Any, size: Any = None, stride: int | None = None) -> Any:
    """An index for `size` entries from `start` on (the first `start` entries without a size)."""
    if start is None:
        return slice(None)
    if size is None:
        start, size = 0, start
    step = 1 if stride is None else stride
    if isinstance(start, int):
        return slice(start, start + (size - 1) * step + 1 if size else start, step)
    return start + as_array(np.arange(0, size * step, step, dtype=np.int32))
