"""CuPy as far as toile asks for it, in host memory: arrays that NumPy must not touch by accident.

With it the real `GpuDevice` runs: GPUs by number, logical devices on them, streams, the pool.
"""

import contextlib
import ctypes
import threading
import types

import numpy as np


class _Current(threading.local):
    device, stream = 0, 0


current = _Current()


class Device:
    """A GPU by number; a block in which it is the current one."""

    def __init__(self, id=None):
        self.id = current.device if id is None else id
        self.pci_bus_id = f"0000:{self.id:02x}:00.0"

    def __enter__(self):
        self.before = current.device
        current.device = self.id

    def __exit__(self, *error):
        current.device = self.before


class Stream:
    """A stream by number."""

    count = 100
    beside = set()  # those that wait for nobody

    def __init__(self, non_blocking=False):
        Stream.count += 1
        self.ptr = Stream.count
        if non_blocking:
            Stream.beside.add(self.ptr)

    def __enter__(self):
        self.before = getattr(self, "before", []) + [current.stream]
        current.stream = self.ptr

    def __exit__(self, *error):
        current.stream = self.before.pop()

    def synchronize(self):
        pass


Stream.null = Stream()
Stream.null.ptr = 0


class Memory:
    """Bytes; `stream` is the one that the pool gave them to."""

    log = []

    def __init__(self, nbytes):
        self.bytes = np.full(nbytes + 256, 0xA5, np.uint8)
        self.ptr = -(-self.bytes.ctypes.data // 256) * 256
        self.device, self.stream = current.device, current.stream
        Memory.log.append((current.device, current.stream))


class UnownedMemory:
    def __init__(self, ptr, size, owner, device):
        self.ptr, self.owner, self.device = ptr, owner, device


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr = mem, mem.ptr + offset


class _Data:
    def __init__(self, ptr):
        self.ptr = ptr

    def copy_from_device_async(self, source, nbytes, stream):
        assert stream is Stream.null
        ctypes.memmove(self.ptr, source.ptr, nbytes)

    def copy_from_device(self, source, nbytes):
        ctypes.memmove(self.ptr, source.ptr, nbytes)


class ndarray:
    """An array on a GPU; `__array__` raises, as CuPy's does."""

    __module__ = "cupy.host"

    def __init__(self, shape, dtype, pointer=None, values=None, device=None, owner=None):
        if values is None:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            memory = (ctypes.c_char * max(size, 1)).from_address(pointer.ptr)
            values = np.ndarray(shape, dtype, memory)
            device, owner = pointer.mem.device, pointer
        self.values, self.owner = values, owner
        self.device = Device(device)
        self.data = _Data(values.ctypes.data)

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    nbytes = property(lambda self: self.values.nbytes)
    flags = property(lambda self: self.values.flags)

    def _like(self, values):
        return ndarray(None, None, values=values, device=self.device.id, owner=self)

    def __getitem__(self, index):
        return self._like(self.values[index if index is not Ellipsis else ...])

    def __setitem__(self, index, value):
        assert value.device.id == self.device.id
        self.values[index] = value.values

    def view(self, dtype):
        return self._like(self.values.view(dtype))

    def reshape(self, *shape):
        return self._like(self.values.reshape(*shape))

    def copy(self):
        return asarray(np.array(self.values))

    def get(self):
        return np.array(self.values)

    def tobytes(self):
        return self.values.tobytes()

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed.")


def alloc(nbytes):
    return Memory(nbytes)


def asarray(x):
    if isinstance(x, ndarray):
        return x
    out = empty(x.shape, x.dtype)
    out.values[...] = x
    return out


def ascontiguousarray(x):
    return x if x.flags.c_contiguous else asarray(np.ascontiguousarray(x.values))


def empty(shape, dtype):
    memory = Memory(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    seen = UnownedMemory(memory.ptr, 0, memory, memory.device)
    return ndarray(shape, dtype, MemoryPointer(seen, 0))


def properties(ordinal):
    return {"name": b"a GPU on the host", "major": 9, "minor": 0, "multiProcessorCount": 132}


runtime = types.SimpleNamespace(
    getDevice=lambda: current.device, setDevice=lambda id: setattr(current, "device", id),
    getDeviceProperties=properties, memGetInfo=lambda: (1 << 40, 1 << 40),
    streamQuery=lambda pointer: 0)  # work is done when a call returns
cuda = types.SimpleNamespace(
    Device=Device, Stream=Stream, alloc=alloc, UnownedMemory=UnownedMemory,
    MemoryPointer=MemoryPointer, runtime=runtime)
module = types.SimpleNamespace(
    cuda=cuda, ndarray=ndarray, asarray=asarray, ascontiguousarray=ascontiguousarray, empty=empty,
    get_default_memory_pool=contextlib.nullcontext)
