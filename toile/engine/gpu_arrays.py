"""Arrays on a GPU: a CuPy buffer where `DeviceArray` has a NumPy one.

`GpuArray` is a DeviceArray to whoever asks with isinstance, and not to the fast paths, which ask
for the exact type. What needs the numbers copies them to the host. CuPy, PyTorch and JAX read the
same memory through `__cuda_array_interface__` and DLPack. May import engine.arrays, engine.gpu.
"""

from __future__ import annotations

import math
import operator
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from toile.engine import config, gpu, gpu_start
from toile.engine.arrays import FAST_OPERATORS, ConcreteArray, DeviceArray, KeyArray
from toile.engine.buffers import coming, signature
from toile.engine.config import flags
from toile.engine.gpu import is_gpu_data
from toile.engine.source import here
from toile.engine.trace import Array, state


class GpuArray(DeviceArray):
    """One immutable buffer on a GPU, with the weak bit."""

    __slots__ = ()

    def __init__(self, data: Any, weak_type: bool = False):
        self._data, self.weak_type = data, weak_type
        self._signature = signature(data.shape, data.dtype, weak_type, gpu.device_of(data))

    # Not of `_data`: most results of compiled code never need CuPy's array.
    shape = property(operator.attrgetter("_signature.shape"))
    dtype = property(operator.attrgetter("_signature.dtype"))
    ndim = property(lambda self: len(self._signature.shape))
    size = property(lambda self: math.prod(self._signature.shape))

    @property
    def device(self) -> Any:
        return gpu.device_of(self._data)

    def block_until_ready(self) -> Any:
        self._data.device  # noqa: B018 - raises for a deleted array, saying why
        self.device.synchronize()
        return self

    def host(self) -> Any:
        """The numbers as a NumPy array."""
        data = self._data
        with data.device:
            self.device.synchronize()
            return data.get()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        found = self.host()
        return found if dtype is None else found.astype(dtype, copy=False)

    # ---- others on the same memory
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.device.synchronize()
        return self._data.__cuda_array_interface__

    @property
    def __array_interface__(self) -> dict[str, Any]:
        raise AttributeError("__array_interface__")  # NumPy then asks __array__

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        self.device.synchronize()
        return self._data.__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    def __buffer__(self, flags: int) -> memoryview:
        return memoryview(self.host())

    def unsafe_buffer_pointer(self) -> int:
        return self._data.data.ptr

    # ---- what reads the numbers
    def _on_host(self) -> DeviceArray:
        return DeviceArray(self.host(), self.weak_type)

    def item(self, *args: Any) -> Any:
        return self._on_host().item(*args)

    def tolist(self) -> Any:
        return self.host().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return self.host().tobytes(order)

    def _scalar(self, name: str) -> Any:
        if self._data.ndim:
            return super()._scalar(name)
        return self.host()

    def __bool__(self) -> bool:
        return bool(self._on_host()) if self.size == 1 else super().__bool__()

    def __format__(self, spec: str) -> str:
        return format(self._on_host(), spec)

    def __repr__(self) -> str:
        return repr(self._on_host())

    def __str__(self) -> str:
        return str(self.host())

    def __iter__(self) -> Iterator[Any]:
        if not self._data.ndim:
            raise TypeError("iteration over a 0-d array" + here())
        if state.trace is not None:
            return iter([self[i] for i in range(self._data.shape[0])])
        return iter([GpuArray(row, self.weak_type) for row in self._data])

    def __reduce__(self) -> Any:
        return _restored, (self.host(), self.weak_type)

    def __contains__(self, value: Any) -> bool:
        return value in self.host()


class _Operators:
    """Quick ways of operators, by operands: learned from calls that were one operation on them.

    While an operator is watched, `first` takes the first operation that went a quick way: operands,
    result, and that way."""

    MOST = 4096

    def __init__(self) -> None:
        self.watched = False
        self.first: tuple[Any, Any, Any] | None = None
        self.known: tuple[Any, dict[Any, Any]] = (None, {})

    def table(self) -> dict[Any, Any]:
        """The table for the configuration of this thread."""
        context, table = self.known
        if flags.context is not context or context[0] is not config._generation:
            config.trace_context()
            table = {}
            self.known = flags.context, table
        return table

    def learn(self, key: Any, arrays: tuple[Any, ...], out: Any) -> None:
        """Note the quick way, if the operation was on these arrays and gave this result."""
        if self.first is None:
            return
        args, result, way = self.first
        on = [a for a in args if a.__class__ is GpuArray]
        if result is not out or len(on) != len(arrays):
            return
        if all(a is b for a, b in zip(on, arrays, strict=True)):
            table = self.table()
            if len(table) >= self.MOST:
                table.clear()
            table[key] = way


    def watch(self, key: Any, arrays: tuple[Any, ...], fun: Any, args: tuple[Any, ...]) -> Any:
        """Call a function and learn its quick way, if it was one operation on these arrays."""
        self.watched = True
        try:
            out = fun(*args)
            self.learn(key, arrays, out)
        finally:  # nothing is kept alive
            self.watched, self.first = False, None
        return out


operators = _Operators()


def called(fun: Any, x: Any, *args: Any) -> Any:
    """`fun(x, *args)` for an array of a GPU, by what was learned of such a call; `args` can be
    hashed, and equal ones mean the same."""
    if state.trace is not None or flags.default_device is not None:
        return fun(x, *args)
    key = fun, x._signature, *args
    way = operators.table().get(key)
    if way is not None:
        memory, pointer = x._memory, x._pointer
        if pointer is not None:
            return way((pointer,), (memory,))
    return operators.watch(key, (x,), fun, (x, *args))


def _quick(name: str) -> Any:
    """The operator as all arrays have it (the quick ones of DeviceArray are NumPy's), or by what
    was learned of operands like these."""
    swaps = name.startswith("__r") and name != "__rshift__"

    def method(self: Any, other: Any) -> Any:
        kind = other.__class__
        key: Any
        arrays: tuple[Any, ...]
        if state.trace is not None or self.__class__ is not GpuArray:
            return getattr(Array, name)(self, other)
        if kind is GpuArray:
            key = name, self._signature, other._signature
            arrays = (other, self) if swaps else (self, other)
        elif kind is int or kind is float and other and other == other:  # -0.0 equals 0.0
            key = name, self._signature, kind, other
            arrays = (self,)
        else:
            return getattr(Array, name)(self, other)
        way = operators.table().get(key)
        if way is not None and flags.default_device is None:
            memory = tuple([a._memory for a in arrays])
            pointers = tuple([a._pointer for a in arrays])
            if None not in pointers:
                return way(pointers, memory)
        return operators.watch(key, arrays, getattr(Array, name), (self, other))

    method.__name__ = method.__qualname__ = name
    return method


for _name in (*FAST_OPERATORS, "__matmul__", "__rmatmul__"):
    setattr(GpuArray, _name, _quick(_name))


def _restored(data: Any, weak: bool) -> Any:
    """An unpickled array, on the default device of the process that reads it."""
    return placed_by_default(DeviceArray(data, weak))


def on_gpu(x: Any) -> bool:
    """Whether a concrete array lies on a GPU."""
    return isinstance(x, ConcreteArray) and is_gpu_data(x._data)


def placed(x: Any, device: Any) -> Any:
    """The array on a device; itself where it is there already. None: on the host."""
    data = x._data
    if device is None or device.platform == "cpu":
        if not is_gpu_data(data):
            return x
        found = GpuArray.host(x) if isinstance(x, GpuArray) else data.get()
        return _like(x, found, DeviceArray)
    if is_gpu_data(data):
        if data.device.id == device.ordinal:
            return x
        return _like(x, device.primary.moved(data, gpu.device_of(data)), GpuArray)
    return _like(x, upload(data, device.primary), GpuArray)


def upload(data: Any, device: gpu.GpuDevice) -> Any:
    """A NumPy array's numbers in a CuPy array."""
    with device.current():
        given = np.ascontiguousarray(data).reshape(data.shape)
        made = gpu.hooks.reserve(device, given.nbytes, lambda _: gpu.cupy().asarray(given))
        gpu.note_upload(made.data.ptr, given.nbytes)
        return made


def _like(x: Any, data: Any, kind: type) -> Any:
    if isinstance(x, KeyArray):
        return KeyArray(data, x.dtype)
    return kind(data, x.weak_type)


# Arrays of at most this many elements that no GPU has a part in yet stay on the host until a
# compiled call, or an operation on an array of a GPU, uses them: there they cost a tenth.
FEW = 1024


def placed_by_default(x: Any) -> Any:
    """A new array where it belongs: large ones on the default device."""
    if x.size > FEW:
        gpu_start.soon()
    device = gpu.default_gpu()
    if device is None or x.size <= FEW:
        return x
    if gpu_start.is_starting() and type(x) is DeviceArray and x._data.nbytes < gpu.LARGE:
        return _arriving(x, device.primary)
    return placed(x, device)


class _Arrival:
    """Brings the numbers of an array to its device, once that has started."""

    __slots__ = ("data", "device", "lock")

    def __init__(self, data: Any, device: gpu.GpuDevice):
        self.data, self.device, self.lock = data, device, threading.Lock()

    def __call__(self, made: GpuArray) -> Any:
        gpu_start.wait_for_context()
        with self.lock:
            if self.data is not None:  # no other thread was faster
                made._data, self.data = upload(self.data, self.device), None
            return made._data


def _arriving(x: DeviceArray, device: gpu.GpuDevice) -> GpuArray:
    """The array on a device that is not ready. Its numbers go there when they are first asked for:
    what asks for shapes only, as tracing does, need not wait."""
    made = GpuArray.__new__(GpuArray)
    made._signature = signature(x.shape, x.dtype, x.weak_type, device)
    coming[id(made)] = _Arrival(x._data, device)
    weakref.finalize(made, coming.pop, id(made), None).atexit = False
    return made
