"""Addresses of C functions, and the checks of arguments that all foreign functions share."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.source import describe, here
from toile.primitives.foreign_calls import register
from toile.targets.llvm import native

_capsules = ctypes.pythonapi
_FUNCTION = ctypes.CFUNCTYPE(None).__mro__[1]  # the base class of all functions of ctypes


def address_of(what: str, function: object) -> int:
    """The address of a C function: ctypes function, PyCapsule or number."""
    if isinstance(function, int) and not isinstance(function, bool) and function > 0:
        return function
    if type(function).__name__ == "PyCapsule":
        named, read = _capsules.PyCapsule_GetName, _capsules.PyCapsule_GetPointer
        named.restype, named.argtypes = ctypes.c_char_p, [ctypes.py_object]
        read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return int(read(function, named(function)))
    if isinstance(function, _FUNCTION):
        pointer: Any = function
        return int(ctypes.cast(pointer, ctypes.c_void_p).value or 0)
    raise TypeError(
        f"{what}: needed a C function, as a function of ctypes, a PyCapsule or an address, got "
        f"{describe(function)} (load the library with ctypes.CDLL(path), then pass library.name)"
        f"{here()}"
    )


_kept: list[Any] = []  # functions of Python that C calls must not be collected


def symbol_of(what: str, label: str, function: object) -> str:
    """The symbol by which compiled programs call a C function."""
    address = address_of(what, function)
    _kept.append(function)
    symbol = register(label, address)
    native.add_symbol(symbol, address)
    return symbol


def results_of(what: str, shapes: Iterable[Any]) -> tuple[Aval, ...]:
    """The avals of results that are described by shapes and dtypes."""
    found = []
    for shape in shapes:
        if not hasattr(shape, "shape") or not hasattr(shape, "dtype"):
            raise TypeError(
                f"{what}: needed the shape and dtype of each result, got {describe(shape)} (pass "
                f"toile.ShapeDtypeStruct(shape, dtype)){here()}"
            )
        dtype = dtypes.canonicalize_dtype(shape.dtype)
        if dtype != shape.dtype:
            raise ValueError(
                f"{what}: needed results of 32-bit dtypes while `jax_enable_x64` is off, got "
                f"{np.dtype(shape.dtype)} (enable x64, or use {dtype}){here()}"
            )
        found.append(Aval(tuple(shape.shape), dtype))
    return tuple(found)
