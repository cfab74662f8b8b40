"""Arrays on a GPU: like `DeviceArray`, with a CuPy buffer instead of a NumPy one.

CuPy, PyTorch and JAX read the same memory through `__cuda_array_interface__` and DLPack. This
module may import platforms.base, platforms.gpu and the engine.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from sys import getrefcount
from typing import Any

from toile.engine import config
from toile.engine.arrays import FAST_OPERATORS, DeviceArray
from toile.engine.buffers import Block, coming, signature
from toile.engine.config import flags
from toile.engine.conversion import placed
from toile.engine.platform_registry import FEW, default_device
from toile.engine.source import here
from toile.engine.trace import Array, state
from toile.platforms.base import ArrayElsewhere, ShardedElsewhere
from toile.platforms.gpu import devices as gpu
from toile.platforms.gpu import start as gpu_start


class GpuArray(ArrayElsewhere):
    """One immutable buffer on a GPU, with its weak_type."""

    __slots__ = ()

    @property
    def device(self) -> Any:
        return gpu.device_of(self._data)

    # ---- sharing memory with other libraries
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.device.synchronize()
        try:
            return self._data.__cuda_array_interface__
        except AttributeError as error:  # otherwise `__getattr__` would be asked
            raise BufferError(str(error)) from None

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        self.device.synchronize()
        return self._data.__dlpack__(stream=stream, **kwargs)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    def unsafe_buffer_pointer(self) -> int:
        return self._data.data.ptr

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array" + here())
        if state.trace is not None:
            return iter([self[i] for i in range(self.shape[0])])
        return iter([GpuArray(row, self.weak_type) for row in self._data])


class ShardedGpuArray(ShardedElsewhere, GpuArray):
    """An array in parts on GPU devices."""

    __slots__ = ("_parts", "_sharding", "_aval", "_is_committed")


class _Blocks:
    """Finds out whether only one array refers to its memory; if so, the memory is a block.

    The reference counts of such an array are measured once for each kind of memory."""

    def __init__(self) -> None:
        self.alone: dict[Any, Any] = {}
        self.measuring = False

    def of(self, data: Any) -> Block | None:
        """The block of a buffer; called for an array that is about to give the buffer up."""
        kind, counts = _references(data)
        if self.measuring:
            self.alone[kind] = counts
            return None
        if kind not in self.alone:
            self._measure()
            self.alone.setdefault(kind, None)
        if self.alone[kind] != counts:
            return None
        memory = getattr(data.data.mem, "_owner", None)
        if memory.__class__ is not gpu.DeviceMemory:
            memory = gpu.DeviceMemory(data.data, data.nbytes, gpu.device_of(data))
        return memory, data.data.ptr

    def _measure(self) -> None:
        cupy, device = gpu.cupy(), gpu.fleet.primary(0)
        with device.current():
            found = [GpuArray(device.empty((1,), cupy.dtype("int8"))), GpuArray(cupy.empty(1))]
        self.measuring = True
        try:
            for x in found:
                x._pointer  # noqa: B018 - asks for the block
        finally:
            self.measuring = False


def _references(data: Any) -> tuple[Any, Any]:
    """The kind of memory that a CuPy array has, and how often everything in it is referred to."""
    pointer = data.data
    memory = pointer.mem
    owner = getattr(memory, "_owner", None)
    if owner.__class__ is gpu.DeviceMemory:
        return gpu.DeviceMemory, [getrefcount(x) for x in (data, pointer, memory, owner)]
    return memory.__class__, owner is None and [getrefcount(x) for x in (data, pointer, memory)]


blocks = _Blocks()


class _Operators:
    """Fast paths of operators, by operands, learned from calls that ran a single operation.

    While an operator is observed, `first` receives the first operation that took a fast path:
    operands, result, and that path."""

    MOST = 4096

    def __init__(self) -> None:
        self.watched = False
        self.first: tuple[Any, Any, Any] | None = None
        self.known: tuple[Any, dict[Any, Any]] = (None, {})

    def table(self) -> dict[Any, Any]:
        """The table for this thread's configuration."""
        context, table = self.known
        if flags.context is not context or context[0] is not config._generation:
            config.trace_context()
            table = {}
            self.known = flags.context, table
        return table

    def learn(self, key: Any, arrays: tuple[Any, ...], out: Any) -> None:
        """Record the fast path, if the operation was on these arrays and gave this result."""
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
        """Call a function and learn its fast path, if it was one operation on these arrays."""
        self.watched = True
        try:
            out = fun(*args)
            self.learn(key, arrays, out)
        finally:  # keep nothing alive
            self.watched, self.first = False, None
        return out


operators = _Operators()


def called(fun: Any, x: Any, *args: Any) -> Any:
    """`fun(x, *args)` for an array on a GPU, by a learned fast path if there is one. `args` are
    hashable, and equal ones are interchangeable."""
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
    """The operator of all arrays (DeviceArray's own fast operators are for NumPy), with the fast
    paths learned for operands like these."""
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


def placed_by_default(x: Any) -> Any:
    """A new array, moved to the default device if it is large."""
    if x.size > FEW:
        gpu_start.soon()
    device = default_device()
    if device is None or x.size <= FEW:
        return x
    if gpu_start.is_starting() and type(x) is DeviceArray and x._data.nbytes < gpu.LARGE:
        return _arriving(x, device.primary)
    return placed(x, device)


class _Arrival:
    """Copies an array to its device once the device has started."""

    __slots__ = ("data", "device", "lock")

    def __init__(self, data: Any, device: gpu.GpuDevice):
        self.data, self.device, self.lock = data, device, threading.Lock()

    def __call__(self, made: GpuArray) -> Any:
        gpu_start.wait_for_context()
        with self.lock:
            if self.data is not None:  # no other thread was faster
                made._data, self.data = gpu.upload(self.data, self.device), None
            return made._data


def _arriving(x: DeviceArray, device: Any) -> GpuArray:
    """The array on a device that is not ready. It is copied there when its buffer is first used:
    code that needs only shapes, such as tracing, does not wait."""
    made = GpuArray.__new__(GpuArray)
    made._signature = signature(x.shape, x.dtype, x.weak_type, device)
    coming[id(made)] = _Arrival(x._data, device)
    weakref.finalize(made, coming.pop, id(made), None).atexit = False
    return made
