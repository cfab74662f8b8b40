"""Arrays from what users and array libraries give: NumPy and CuPy arrays, numbers, raw results.

May import engine.arrays, engine.gpu_arrays and below.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import ConcreteArray, DeviceArray, KeyArray
from toile.engine.avals import Aval, check_numeric
from toile.engine.errors import UnexpectedTracerError
from toile.engine.gpu import presence
from toile.engine.gpu_arrays import GpuArray, is_gpu_data, placed_by_default
from toile.engine.source import here
from toile.engine.trace import Array, Tracer, check_alive

ndarray = np.ndarray


def wrap(data: Any, weak: bool = False) -> DeviceArray:
    """A DeviceArray around what an array library returned (rank-0 results may be scalars)."""
    if data.__class__ is not ndarray:
        if is_gpu_data(data):
            return GpuArray(data, weak)
        data = np.asarray(data)
    return DeviceArray(data, weak)


def wrap_aval(data: Any, aval: Aval) -> Any:
    """Wrap a raw result whose aval is known."""
    if dtypes.is_extended(aval.dtype):
        return KeyArray(data, aval.dtype)
    return wrap(data, aval.weak_type)


def from_numpy(x: Any, weak_type: bool = False, copy: bool = True) -> DeviceArray:
    """A DeviceArray with the values of a NumPy array, converted to a canonical dtype.

    The buffer is shared only when nobody can write to it: the array is read-only and owns its
    data, or `copy` is False."""
    dtype = x.dtype
    wanted = dtypes.canonicalize_dtype(dtype)
    if is_gpu_data(x):
        return GpuArray(x.astype(wanted, copy=copy), weak_type)
    if wanted != dtype or not dtype.isnative:
        x = np.asarray(x).astype(wanted)
    elif copy and (x.flags.writeable or not x.flags.owndata):
        x = np.array(x, copy=True, order="C" if x.flags.c_contiguous else "K", subok=False)
    if x.__class__ is not ndarray:
        x = np.asarray(x)
    made = DeviceArray(x, weak_type)
    return made if presence.none else placed_by_default(made)


_WEAK = (int, float, complex)


def as_array(x: Any) -> Any:
    """An Array (or tracer) from any array-like operand; Python scalars are weak."""
    kind = type(x)
    if kind is DeviceArray or isinstance(x, Array):
        return x
    if kind in _WEAK:
        return DeviceArray(np.asarray(x, dtypes.scalar_dtype(x)), True)
    if isinstance(x, ndarray):
        if x.dtype == dtypes.float0:
            return DeviceArray(x)
        if kind is not ndarray or x.dtype.kind in "OUSMm":
            check_numeric(x)
        return from_numpy(x)
    if isinstance(x, (bool, np.generic)):
        return from_numpy(np.asarray(x), copy=False)
    if isinstance(x, _WEAK):
        return DeviceArray(np.asarray(x, dtypes.scalar_dtype(x)), True)
    if is_gpu_data(x):
        return from_numpy(x)
    if hasattr(x, "__jax_array__"):
        return as_array(x.__jax_array__())
    raise TypeError(
        f"Argument {x!r} of type {kind} is not a valid JAX type: needed an array, a NumPy array or "
        f"a number (pass and return arrays and numbers only){here()}"
    )


def raw_operand(x: Any) -> Any:
    """The buffer of an operand of an eager operation."""
    if isinstance(x, ConcreteArray):
        return x._data
    if isinstance(x, Tracer):
        check_alive(x)
        raise UnexpectedTracerError(
            f"Encountered an unexpected tracer: a live tracer {x!r} reached the eager evaluator. "
            "Needed: a concrete array; got: a tracer of a function that is still being traced "
            f"(use it inside of that function, or pass it as an argument).{x.created()}{here()}"
        )
    return as_array(x)._data
