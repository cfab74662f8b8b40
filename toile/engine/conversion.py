"""Make arrays from users' values and from the raw results of array libraries.

This module may import engine.arrays, engine.platform_registry and the modules below them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.arrays import ConcreteArray, DeviceArray, KeyArray
from toile.engine.avals import Aval, check_numeric
from toile.engine.config import flags
from toile.engine.errors import UnexpectedTracerError
from toile.engine.foreign_names import conversion_of
from toile.engine.platform_registry import default_device, platform_of, registry
from toile.engine.source import describe, here
from toile.engine.trace import Array, Tracer, check_alive

ndarray = np.ndarray


def wrap(data: Any, weak: bool = False) -> DeviceArray:
    """A DeviceArray around the result of an array library (rank-0 results may be scalars)."""
    if data.__class__ is not ndarray:
        owner = platform_of(data)
        if owner is not None:
            return owner.wrap(data, weak)
        data = np.asarray(data)
    return DeviceArray(data, weak)


def wrap_aval(data: Any, aval: Aval) -> Any:
    """Wrap a raw result whose aval is known."""
    if dtypes.is_extended(aval.dtype):
        return KeyArray(data, aval.dtype)
    if not aval.dtype.itemsize:
        return np.asarray(data)
    return wrap(data, aval.weak_type)


def leaving(x: Any) -> Any:
    """A result as a transformation returns it: a float0 array is a NumPy array, as in JAX."""
    if isinstance(x, ConcreteArray) and x.dtype == dtypes.float0:
        return np.zeros(x.shape, dtypes.float0)
    return x


def from_numpy(x: Any, weak_type: bool = False, copy: bool = True) -> DeviceArray:
    """A DeviceArray with the values of a NumPy array, converted to a canonical dtype.

    The buffer is shared only if nobody can write to it: the array is read-only and owns its data,
    or `copy` is False."""
    dtype = x.dtype
    wanted = dtypes.canonicalize_dtype(dtype)
    owner = platform_of(x)
    if owner is not None:
        return owner.wrap(owner.converted(x, wanted, copy), weak_type)
    if wanted != dtype or not dtype.isnative:
        x = np.asarray(x).astype(wanted)
    elif copy and (x.flags.writeable or not x.flags.owndata):
        x = np.array(x, copy=True, order="C" if x.flags.c_contiguous else "K", subok=False)
    if x.__class__ is not ndarray:
        x = np.asarray(x)
    made = DeviceArray(x, weak_type)
    return placed_by_default(made) if registry.active else made


def like(x: Any, data: Any, kind: type) -> Any:
    """An array like `x` around another buffer: a key array if `x` is one, else of class `kind`."""
    if isinstance(x, KeyArray):
        return KeyArray(data, x.dtype)
    return kind(data, x.weak_type)


def placed(x: Any, device: Any) -> Any:
    """The array on a device (None: the host); the same object if the array is already there, and
    if it is an array of float0, which has no bytes."""
    data = x._data
    if data.dtype == dtypes.float0:
        return x
    owner = platform_of(data)
    if device is None or device.platform == "cpu":
        if owner is None:
            return x
        return like(x, x.host() if isinstance(x, owner.array) else owner.get(data), DeviceArray)
    if owner is not None and owner.device_of(data) is device.primary:
        return x
    return like(x, device.primary.put(data), registry.names[device.platform].array)


def placed_by_default(x: Any) -> Any:
    """A new array at its default place: large ones go to the default device."""
    if flags.default_device is not None:
        device = default_device()
        return x if device is None else registry.names[device.platform].placed_by_default(x)
    for platform in registry.active:
        if platform.is_default:
            return platform.placed_by_default(x)
    return x


def new_array(values: Any) -> Any:
    """An array with the values of a NumPy array, at the default place of new arrays."""
    made = wrap(values)
    return placed_by_default(made) if registry.active else made


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
    if platform_of(x) is not None:
        return from_numpy(x)
    if getattr(x, "__jax_array__", None) is not None:
        return as_array(x.__jax_array__())
    raise TypeError(
        f"Argument {describe(x)} of type {kind} is not a valid JAX type: needed an array, a NumPy "
        f"array or a number ({conversion_of(x) or 'pass and return arrays and numbers only'})"
        f"{here()}"
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
            f"(use it inside that function, or pass it as an argument).{x.created()}{here()}"
        )
    return as_array(x)._data
