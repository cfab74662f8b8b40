"""The slots that arrays and compiled code share: signatures, pointers, reusable memory.

An array has four slots, each filled from the others when first read: `_data` (a NumPy array),
`_signature`, `_pointer` (to the first element) and `_memory` (keeps the bytes alive). Eager code
sets `_data`, compiled calls set the other three, and most of their results never need `_data`. This
module may import engine.dtypes and engine.platform_registry.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from sys import getrefcount
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.platform_registry import device_of, platform_of

# Bytes that compiled code writes to, and the address of the first one.
Block = tuple[Any, int]

_BYTE = np.dtype(np.uint8)
_at_buffer, _address = ctypes.c_char.from_buffer, ctypes.addressof


def allocate(nbytes: int) -> Block:
    """Uninitialized memory for results."""
    memory: Any = _large(nbytes) if nbytes >= LARGE else np.empty(nbytes or 1, _BYTE)
    return memory, _address(_at_buffer(memory))  # 1 us; `memory.ctypes.data` takes 4


# ---- Large blocks are kept for reuse: the system would return new pages filled with zeros, which
# takes longer than most kernels do. Kept and used memory together never exceed the peak use: before
# new memory is allocated, as much kept memory is released.

LARGE = 1 << 20  # bytes
MOST_KEPT = 1 << 28

_kept: dict[int, list[Any]] = {}  # by size


class _Storage(np.ndarray):
    """Bytes that are reused. If this were a plain array, NumPy would make it the base of all views;
    with this class, views keep the `_Memory` alive."""

    __slots__ = ()


class _Memory(np.ndarray):
    """One use of a `_Storage`, whose bytes are kept for reuse when the last reference to the
    `_Memory` is dropped."""

    __slots__ = ()

    def __del__(self, kept: dict[int, list[Any]] = _kept, storage: type = _Storage) -> None:
        bytes_, size = self.base, self.nbytes
        # At interpreter exit, arrays may outlive the names of this module, which are None then.
        if MOST_KEPT and bytes_.__class__ is storage:
            if size + sum(n * len(x) for n, x in list(kept.items())) <= MOST_KEPT:
                kept.setdefault(size, []).append(bytes_)


def _large(nbytes: int) -> np.ndarray:
    try:
        found = _kept[nbytes].pop()
    except (KeyError, IndexError):
        release(nbytes)
        found = _Storage(nbytes, _BYTE)
    return found.view(_Memory)


def release(nbytes: float = float("inf")) -> None:
    """Release kept memory to the system, at least `nbytes` if there is that much."""
    for size in list(_kept):
        try:
            while nbytes > 0:
                _kept[size].pop()
                nbytes -= size
        except (KeyError, IndexError):
            _kept.pop(size, None)


# The sharding of an array on one device, and whether it was put there on purpose.
Placement = tuple[Any, bool]


class Signature:
    """What arrays of one kind share: shape, dtype, weak bit, device, and the form of their buffers.

    The device is None for host memory. Sharded arrays on one device have a placement too. Compiled
    calls compare signatures by identity; if equal signatures are different objects, the call is
    merely slower."""

    __slots__ = ("shape", "dtype", "weak_type", "device", "placement", "buffer_shape",
                 "buffer_dtype")

    def __init__(
        self, shape: tuple[int, ...], dtype: Any, weak_type: bool, device: Any = None,
        placement: Placement | None = None,
    ):
        self.shape, self.dtype, self.weak_type, self.device = shape, dtype, weak_type, device
        self.placement = placement
        keys = dtypes.is_extended(dtype)
        self.buffer_shape = (*shape, *dtype.impl.key_shape) if keys else shape
        self.buffer_dtype = np.dtype(np.uint32) if keys else dtype


_signatures: dict[Any, Signature] = {}
_MAX_SIGNATURES = 16384


def signature(
    shape: tuple[int, ...], dtype: Any, weak_type: bool, device: Any = None,
    placement: Placement | None = None,
) -> Signature:
    """The signature of arrays of one kind."""
    key = (shape, dtype, weak_type, device, placement)
    found = _signatures.get(key)
    if found is None:
        if len(_signatures) >= _MAX_SIGNATURES:
            _signatures.clear()
        found = _signatures[key] = Signature(*key)
    return found


# Arrays still on the host while their device starts: by id, the function that
# copies them there.
coming: dict[int, Callable[[Any], Any]] = {}


def _fill_data(x: Any) -> Any:
    form = x._signature
    if coming and id(x) in coming:
        return coming[id(x)](x)  # an entry lives as long as its array
    memory, start = x._memory
    if form.device is not None:  # not stored: while a view exists, the block is not `owned`
        return memory.array(form.buffer_shape, form.buffer_dtype, x._pointer - start)
    data = np.ndarray(form.buffer_shape, form.buffer_dtype, memory, x._pointer - start)
    x._data = data
    return data


def _fill_signature(x: Any) -> Signature:
    x._signature = found = signature(x.shape, x.dtype, x.weak_type, device_of(x._data))
    return found


def _fill_pointer(x: Any) -> int:
    """Fill the pointer, after copying the data once if it is not row-major and aligned."""
    data = x._data
    owner = platform_of(data)
    if owner is not None:
        data, pointer = owner.address(data)
        x._data = x._memory = data
        x._pointer = pointer
        form = x._signature
        if form.placement is None and form.buffer_dtype is form.dtype:
            block = owner.block(data)
            if block is not None:
                x._memory = block
                del x._data  # a view, made again when it is needed
        return pointer
    flags = data.flags
    if not (flags.c_contiguous and flags.aligned):
        x._data = data = np.array(data, order="C", copy=True, subok=False)
    x._memory = data
    x._pointer = pointer = data.ctypes.data
    return pointer


def _fill_weak_type(x: Any) -> bool:
    x.weak_type = weak = x._signature.weak_type
    return weak


# Functions that fill an empty slot. Without `_pointer` the only memory is that of `_data`.
LATE: dict[str, Callable[[Any], Any]] = {
    "_data": _fill_data,
    "_signature": _fill_signature,
    "_pointer": _fill_pointer,
    "_memory": lambda x: x._data,
    "weak_type": _fill_weak_type,
    "_dtype": lambda x: x._signature.dtype,  # of random keys
}


# ---- reused memory

# Reference counts of a block, and of its memory, that `recycled` and `give_back` see when there are
# no other references. Measured once, since interpreters differ.


def _references(blocks: list[Any]) -> tuple[int, int]:
    block = blocks[0]
    return getrefcount(block), getrefcount(block[0])


_IDLE = _references([allocate(1)])


def recycled(
    turns: list[Block | None], nbytes: int, allocate: Callable[[int], Block] = allocate
) -> Block:
    """The block of the call before the last if nothing refers to it any longer, or a new one."""
    block = turns[0]
    if block is None or (getrefcount(block), getrefcount(block[0])) != _IDLE:
        block = allocate(nbytes)
    turns[0], turns[1] = turns[1], block
    return block


def _counts(block: Block) -> tuple[int, int]:
    return getrefcount(block), getrefcount(block[0])


def _counts_in_a_call() -> tuple[int, int]:
    """The counts that `owned` sees when generated code checks a block that one array holds."""
    array = [allocate(1)]
    memory = (array[0],)

    def leave(memory: tuple[Block, ...]) -> tuple[int, int]:
        block = memory[0]
        return _counts(block)

    return leave(memory)


_OWNED = _counts_in_a_call()


def owned(block: Any) -> bool:
    """Whether an argument's memory is a block that only the array refers to."""
    return block.__class__ is tuple and (getrefcount(block), getrefcount(block[0])) == _OWNED


def taken(
    pool: list[Block], nbytes: int, allocate: Callable[[int], Block] = allocate
) -> Block:
    """A block from the pool, or a new one."""
    try:
        return pool.pop()
    except IndexError:
        return allocate(nbytes)


def give_back(arrays: Iterable[Any], pools: dict[int, tuple[list[Block], int]]) -> None:
    """Delete donated arrays; memory without other references goes to the pool of its size.

    An array made by compiled code has a block. If views, exports or a run in another thread refer
    to the block, they keep it."""
    for x in arrays:
        memory = getattr(x, "_memory", None)
        if memory is None:
            continue  # a NumPy array or a number
        held = [memory]
        x.delete()
        del memory
        if held[0].__class__ is tuple:
            pool, limit = pools.get(held[0][0].nbytes, (None, 0))
            if pool is not None and len(pool) < limit and _references(held) == _IDLE:
                pool.append(held[0])
