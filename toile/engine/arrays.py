"""Concrete arrays: an immutable buffer and a weak bit.

`DeviceArray` is the fast path and is recognized by its exact type; its operators call NumPy
directly if there is no trace and the dtypes agree, and otherwise use the operators that `toile`
installs on `Array`. A `KeyArray` contains random keys; its uint32 buffer has one more axis than its
shape. This module may import the modules of the engine below it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import numpy as np

from toile.engine import devices, dtypes
from toile.engine.avals import Aval
from toile.engine.buffers import LATE, Signature
from toile.engine.foreign_names import method_instead
from toile.engine.fp_errors import quiet_runner
from toile.engine.nan_notices import notice_read, notices
from toile.engine.platform_registry import FEW, default_device, device_of
from toile.engine.shardings import SingleDeviceSharding
from toile.engine.source import here
from toile.engine.trace import Array, runs_at_once, state
from toile.engine.tracebacks import expect_error

ndarray = np.ndarray

__all__ = ["Array", "ConcreteArray", "DeviceArray", "KeyArray"]


class _Deleted:
    """Takes the place of a deleted array's buffer."""

    _was = ""  # the shape and dtype of the array

    def _refuse(self, *args: Any, **kw: Any) -> Any:
        raise RuntimeError(
            f"Array has been deleted{self._was}. Needed a live buffer, got a deleted or donated "
            "buffer (use the result of the jitted call that it was donated to, or drop "
            f"donate_argnums){here()}"
        )

    def __getattr__(self, name: str) -> Any:
        self._refuse()

    __array__ = __array_ufunc__ = __reduce__ = __str__ = __format__ = _refuse
    __getitem__ = __iter__ = __contains__ = __len__ = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse


class _DeletedBuffer(_Deleted):
    """A `_Deleted` for arrays of one signature; it keeps their shape and dtype for printing."""

    def __init__(self, form: Signature):
        self.shape, self.dtype = form.buffer_shape, form.buffer_dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self._was = f" with shape={Aval(form.shape, form.dtype).str_short()}"


_DELETED: Any = _Deleted()
_deleted_buffers: dict[Signature, _DeletedBuffer] = {}


class ConcreteArray(Array):
    """Common base of arrays with a buffer: conversion, printing, pickling, device queries.

    Reading an empty slot fills it (see engine.buffers)."""

    __slots__ = ("_data", "_signature", "_pointer", "_memory", "__weakref__")
    _data: Any
    _signature: Signature
    _pointer: int | None  # None: deleted
    _memory: Any
    weak_type: bool

    def __getattr__(self, name: str) -> Any:
        fill = LATE.get(name)
        if fill is None:
            kind = type(self).__name__
            text = f"{kind!r} object has no attribute {name!r}"
            if name == "__cuda_array_interface__":
                text = f"{name} is only defined for GPU buffers."
            hint = method_instead(name)
            if hint:
                text += hint
                expect_error()
            raise AttributeError(text, name=name, obj=self)
        return fill(self)

    @property
    def aval(self) -> Aval:
        """The shape and dtype as one object."""
        return Aval(self.shape, self.dtype, self.weak_type)

    # Attributes of NumPy arrays.
    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self._data.nbytes

    @property
    def itemsize(self) -> int:
        """The size of one element in bytes."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError(
                "len() of unsized object: needed an array of rank >= 1, got "
                f"{self.aval.str_short()} (use x.size, or x.reshape(-1)){here()}"
            )
        return shape[0]

    # Devices.
    @property
    def device(self) -> Any:
        """The device of the array, or its sharding if it is on several devices.

        An array with few elements is on the default device, even though its values stay on the
        host until an operation on that device uses them."""
        found = device_of(self._data)
        if found is None and self._data.size <= FEW:
            found = default_device()
        return found or devices.first_device()

    def devices(self) -> set[Any]:
        """Return the set of devices on which the array is stored."""
        return {self.device}

    @property
    def committed(self) -> bool:
        """Whether the array was explicitly put on its device with `device_put`."""
        return False

    _committed = committed

    @property
    def is_fully_replicated(self) -> bool:
        """Whether every device of the array stores the whole array."""
        return True

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices of the array belong to this process."""
        return True

    @property
    def sharding(self) -> Any:
        """How the array is divided among devices."""
        return SingleDeviceSharding(self.device)

    @property
    def addressable_shards(self) -> list[Any]:
        """The parts of the array that are stored on this process's devices."""
        return [Shard(self.device, self)]

    @property
    def global_shards(self) -> list[Any]:
        """The parts of the array that are stored on all devices."""
        return self.addressable_shards

    def addressable_data(self, index: int) -> Any:
        """Return the part at position `index` in the list of parts on this process's devices."""
        return self.addressable_shards[index].data

    def block_until_ready(self) -> Any:
        """Wait until the values are computed, and return the array."""
        return self._data._refuse() if self._memory is _DELETED else self

    def copy_to_host_async(self) -> None:
        """Start copying the values to the host, without waiting for the copy to finish."""
        if self.is_deleted():
            self._data._refuse()

    def is_ready(self) -> bool:
        """Test whether the values have been computed."""
        return True

    def is_deleted(self) -> bool:
        """Test whether the memory was released by `delete` or by donation."""
        return self._memory is _DELETED

    def delete(self) -> None:
        """Release the memory; any later use of the array raises an error."""
        self._data = self._memory = _DELETED
        self._pointer = None

    def on_device_size_in_bytes(self) -> int:
        """The size of the elements on the device, in bytes."""
        return self.nbytes

    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "JAX arrays are immutable and do not support in-place item assignment: needed a new "
            f"array, got an item assignment to {self.aval.str_short()} (write "
            f"`x = x.at[{_index_text(index)}].set(value)`){here()}"
        )

    def __copy__(self) -> Any:
        """Return an array with its own buffer or, while a function is traced, this array itself."""
        return self.copy() if runs_at_once() else self

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()


def _index_text(index: Any) -> str:
    text = repr(index)
    return text if len(text) <= 30 else "..."


class DeviceArray(ConcreteArray):
    """One immutable buffer on one device, with the weak bit."""

    __slots__ = ("weak_type",)

    def __init__(self, data: Any, weak_type: bool = False):
        self._data = data
        self.weak_type = weak_type

    # Read by every public function, so the getters are in C.
    shape = property(operator.attrgetter("_data.shape"))
    dtype = property(operator.attrgetter("_data.dtype"))
    ndim = property(operator.attrgetter("_data.ndim"))
    size = property(operator.attrgetter("_data.size"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        data = self._data
        if dtype is not None and np.dtype(dtype) != data.dtype:
            return data.astype(dtype)
        if copy:
            return data.copy()
        view = data.view()
        view.flags.writeable = False
        return view

    __array_priority__ = 100

    def delete(self) -> None:
        form = self._signature
        gone = _deleted_buffers.get(form)
        if gone is None:
            if len(_deleted_buffers) >= 4096:
                _deleted_buffers.clear()
            gone = _deleted_buffers[form] = _DeletedBuffer(form)
        self._data, self._memory, self._pointer = gone, _DELETED, None

    def __dlpack__(self, **kwargs: Any) -> Any:
        data = self._data
        if not data.flags.writeable:  # NumPy does not export a buffer that it cannot flag read-only
            data = data.copy()
        return data.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    @property
    def __array_interface__(self) -> dict[str, Any]:
        view = self.__array__()
        # Through the interface, bfloat16 would arrive as bytes without a type, and an array that is
        # not row-major would arrive as a pointer to memory that nothing keeps alive once this array
        # is deleted or donated. Without the interface, NumPy calls __array__.
        if view.dtype.isbuiltin != 1 or not view.flags.c_contiguous:
            raise AttributeError("__array_interface__")
        interface = view.__array_interface__
        interface["strides"] = view.strides  # readers that find None ask for a buffer
        if view.size:
            interface["data"] = view  # the reader holds the view
        return interface

    def __buffer__(self, flags: int) -> memoryview:
        try:
            return memoryview(self.__array__())
        except ValueError:  # ml_dtypes' elements have no format letter
            kind = {"bfloat16": "BF16"}.get(self.dtype.name, self.dtype.name)
            raise BufferError(
                f"Buffers of type {kind} are not supported by the Python buffer protocol."
            ) from None

    def unsafe_buffer_pointer(self) -> int:
        return self._data.ctypes.data

    def item(self, *args: Any) -> Any:
        try:
            return self._data.item(*args)
        except ValueError as error:
            raise ValueError(
                f"{error}: got {self.aval.str_short()} (index or reduce it first, or use "
                f".tolist()){here()}"
            ) from None

    def tolist(self) -> Any:
        return self._data.tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self._data.tobytes(order)

    def _scalar(self, name: str) -> Any:
        data = self._data
        if data.ndim:
            raise TypeError(
                f"Only scalar arrays can be converted to Python scalars; got arr.ndim={data.ndim} "
                f"(needed shape () for {name}(), got {data.shape}; use .item() or index it){here()}"
            )
        return data

    def __bool__(self) -> bool:
        data = self._data
        if data.size != 1:
            if not data.size:
                raise ValueError(
                    "The truth value of an empty array is ambiguous. Use `array.size > 0` to check "
                    f"that an array is not empty (got shape {data.shape}){here()}"
                )
            raise ValueError(
                "The truth value of an array with more than one element is ambiguous. "
                f"Use a.any() or a.all() (needed size 1, got shape {data.shape}){here()}"
            )
        return bool(data)

    def __float__(self) -> float:
        value = float(self._scalar("float"))
        if value != value and notices.training:
            notice_read()
        return value

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        data = self._data
        if data.ndim or data.dtype.kind not in "iu":
            raise TypeError(
                "Only integer scalar arrays can be converted to a scalar index: got "
                f"{self.aval.str_short()} (convert it with int(x)){here()}"
            )
        return self._scalar("index").__index__()

    def __format__(self, spec: str) -> str:
        data = self._data
        try:
            return format(data if data.ndim else data[()], spec)
        except (TypeError, ValueError) as error:
            advice = "round it with toile.numpy.round, or format its elements"
            raise type(error)(
                f"{error}: got {spec!r} for {self.aval.str_short()} "
                f"({advice if data.ndim else 'convert it with float(x) or int(x)'}){here()}"
            ) from None

    def __repr__(self) -> str:
        data = self._data
        weak = ", weak_type=True" if self.weak_type else ""
        end = f", dtype={dtypes.name_of(data.dtype)}{weak})"
        if data.size == 0:
            return f"Array([], shape={data.shape}{end}"
        body = np.array2string(data, separator=", ", prefix="Array(", suffix=",")
        last = len(body) - (body.rfind("\n") + 1) + (0 if "\n" in body else 6)
        if last + len(end) > np.get_printoptions()["linewidth"]:
            return f"Array({body}{end[0]}\n      {end[2:]}"
        return f"Array({body}{end}"

    def __str__(self) -> str:
        return str(self._data)

    def __iter__(self) -> Iterator[Any]:
        if not self._data.ndim:
            raise TypeError(
                "iteration over a 0-d array (needed at least one axis, got shape (): read the "
                f"value with x.item(), or write x.reshape(1)){here()}"
            )
        if state.trace is not None:
            return map(self.__getitem__, range(self._data.shape[0]))
        return map(_host, self._data, repeat(self.weak_type))

    def __reduce__(self) -> Any:
        return _restore, (self._data, self.weak_type)


def _restore(data: Any, weak: bool) -> DeviceArray:
    dtype = dtypes.canonicalize_dtype(data.dtype)  # without x64, a 64-bit array becomes narrower
    return DeviceArray(data if dtype == data.dtype else data.astype(dtype), weak)


class KeyArray(ConcreteArray):
    """An array of random keys; the buffer has the key's words as its last axis."""

    __slots__ = ("_dtype", "_spent", "_of_words")
    weak_type = False
    _spent: Any  # which keys are used, and where they were first used; set while uses are checked
    _of_words: bool  # whether it was made from words, which are followed; set by `checks("keys")`

    def __init__(self, data: Any, dtype: Any):
        self._data = data
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape[:-1]

    @property
    def dtype(self) -> Any:
        return self._dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError(
            "JAX array with PRNGKey dtype cannot be converted to a NumPy array. Needed numbers, "
            f"got an array of {self._dtype} (use toile.random.key_data){here()}"
        )

    def __repr__(self) -> str:
        return f"Array({self.shape}, dtype={self._dtype}) overlaying:\n{self._data}"

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d key array" + here())
        if state.trace is not None and not state.trace.at_once:
            return map(self.__getitem__, range(self.shape[0]))
        return map(KeyArray, self._data, repeat(self._dtype))

    def __reduce__(self) -> Any:
        return KeyArray, (self._data, self._dtype)

    def __bool__(self) -> bool:
        raise TypeError(f"needed a number for a condition, got an array of {self._dtype}{here()}")


class Shard:
    """The part of an array that is stored on one device.

    `x.addressable_shards` lists the parts of `x` that are stored on this process's devices.

    Args:
        device: device that stores the part.
        data: the part, an array on that device.
        index: the position of the part in the whole array, as one slice for each axis; None if the
            part is the whole array.
        replica_id: number of this copy if several devices store the same part; the first copy has
            number 0.
    """

    __slots__ = ("device", "data", "index", "replica_id")

    def __init__(self, device: devices.Device, data: Array,
                 index: tuple[slice, ...] | None = None, replica_id: int = 0):
        self.device, self.data, self.replica_id = device, data, replica_id
        self.index: tuple[slice, ...] = (slice(None),) * data.ndim if index is None else index

    def __repr__(self) -> str:
        return (f"Shard(device={self.device!r}, index={self.index}, "
                f"replica_id={self.replica_id}, data={self.data})")


def _host(data: Any, weak: bool) -> DeviceArray:
    """A DeviceArray around what NumPy returned (rank-0 results may be scalars)."""
    return DeviceArray(data if data.__class__ is ndarray else np.asarray(data), weak)


# ------------------------------------------------------------------ fast operators of DeviceArray

_FAST_FLOAT = frozenset("fd")  # NumPy arithmetic on these agrees with ours, Python scalars included
_FAST_REAL = frozenset("fdeihlqbBHILQ?")
_FLOAT32 = np.dtype(np.float32)
_quiet = quiet_runner()  # shared by threads; if it is busy, a thread uses its own `state.quiet`


def _with_number(
    ufunc: Any, swap: bool, slow: Callable[[Any, Any], Any]
) -> Callable[[Any, Any], Any]:
    """The branch of an operator for Python numbers; other operands are passed to `slow`."""

    def rest(self: Any, other: Any) -> Any:
        kind = other.__class__
        if state.trace is not None or not (kind is float or kind is int):
            return slow(self, other)
        a = self._data
        if a.dtype.char not in _FAST_FLOAT:
            return slow(self, other)
        pair = (other, a) if swap else (a, other)
        try:
            return _host(state.quiet(ufunc, *pair), self.weak_type)
        except MemoryError:
            return slow(self, other)

    return rest


def _binary(
    name: str, ufunc: Any, chars: frozenset[str], swap: bool = False
) -> Callable[..., Any]:
    """An operator that calls NumPy directly if it can; every attribute read costs time."""

    def method(
        self: DeviceArray,
        other: Any,
        state: Any = state,
        quiet: Any = _quiet,
        new: Any = object.__new__,
        array: Any = DeviceArray,
        ndarray: Any = ndarray,
        ufunc: Any = ufunc,
        usual: Any = _FLOAT32,
    ) -> Any:
        # `type(x)` is faster than `x.__class__` for a class with __getattr__.
        if type(other) is array and state.trace is None:
            a, b = self._data, other._data
            dtype = a.dtype
            if dtype is b.dtype and (dtype is usual or dtype.char in chars):
                try:
                    out = quiet(ufunc, a, b)
                except RuntimeError:  # another thread is using it
                    out = state.quiet(ufunc, a, b)
                except (ValueError, MemoryError):
                    return slow(self, other)
                if type(out) is not ndarray:
                    out = np.asarray(out)
                result = new(array)
                result._data = out
                result.weak_type = self.weak_type and other.weak_type
                return result
        return rest(self, other)

    def slow(self: Any, other: Any) -> Any:
        return getattr(Array, name)(self, other)

    rest = _with_number(ufunc, swap, slow)
    method.__name__ = method.__qualname__ = name
    return method


_ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
_COMPARE = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_NUMBERS = _FAST_REAL - {"?"}


FAST_OPERATORS = (
    *(f"__{r}{name}__" for name in (*_ARITHMETIC, "truediv") for r in ("", "r")),
    *(f"__{name}__" for name in _COMPARE),
)


def _install_fast_operators() -> None:
    for name, ufunc in _ARITHMETIC.items():
        direct, swapped = f"__{name}__", f"__r{name}__"
        setattr(DeviceArray, direct, _binary(direct, ufunc, _NUMBERS))
        setattr(DeviceArray, swapped, _binary(swapped, ufunc, _NUMBERS, swap=True))
    divide, divided = "__truediv__", "__rtruediv__"
    setattr(DeviceArray, divide, _binary(divide, np.true_divide, _FAST_FLOAT))
    setattr(DeviceArray, divided, _binary(divided, np.true_divide, _FAST_FLOAT, swap=True))
    for name, ufunc in _COMPARE.items():
        setattr(DeviceArray, f"__{name}__", _binary(f"__{name}__", ufunc, _FAST_REAL))


_install_fast_operators()
