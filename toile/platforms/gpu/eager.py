"""Fast paths of eager operations on a GPU, learned from calls that have run.

Each operation is a Program of one equation, compiled once for its operands (`platforms.base`).
After the second call, a function of the operands' pointers launches it. This module may import
platforms.gpu and the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.arrays import DeviceArray
from toile.engine.config import flags
from toile.engine.operation import Operation
from toile.engine.program import Program
from toile.engine.trace import state
from toile.platforms.gpu import late
from toile.platforms.gpu.arrays import GpuArray, operators
from toile.platforms.gpu.devices import GpuDevice

MOST = 4096  # fast paths that are kept
_ways: dict[Any, Any] = {}  # by operation and operands; None: it has run once


def _known(op: Operation, args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """A key for operations on such operands, and the operands on GPUs; None if there is no key."""
    key: list[Any] = [op]
    on = []
    for a in args:
        if a.__class__ is GpuArray:
            key.append(a._signature)
            on.append(a)
        elif a.__class__ is DeviceArray and not a._data.ndim:
            key += [a._data.dtype, a.weak_type, a._data.tobytes()]
        else:
            return None, on
    return (tuple(key) if on and flags.default_device is None else None), on


def quickly(op: Operation, args: Sequence[Any]) -> Any:
    """The results of an operation with a known fast path, or NotImplemented."""
    key, on = _known(op, args)
    if key is None:
        return NotImplemented
    try:
        way = _ways.get(key)
    except TypeError:  # a parameter that is not hashable
        return NotImplemented
    if way:
        memory = tuple([a._memory for a in on])
        pointers = tuple([a._pointer for a in on])
        if None not in pointers:
            out = way(pointers, memory)
            if operators.watched and operators.first is None:
                operators.first = args, out, way
            return out
    return NotImplemented


def unary(op: Operation, x: Any) -> Any:
    """Apply an operation to one array on a GPU, whose dtype it accepts."""
    if state.trace is None and flags.default_device is None:
        way = _ways.get((op, x._signature))
        if way:
            memory, pointer = x._memory, x._pointer
            if pointer is not None:
                out = way((pointer,), (memory,))
                if operators.watched and operators.first is None:
                    operators.first = (x,), out, way
                return out
    return op(x)


def learn(op: Operation, args: Sequence[Any], program: Program, device: GpuDevice) -> None:
    """After the second call, create the fast path of later calls."""
    key = _known(op, args)[0]
    if key is None:
        return
    if len(_ways) >= MOST:
        _ways.clear()
    try:
        known = key in _ways
        _ways[key] = late.exits().way_of(program, device, op.multiple) or 0 if known else None
    except TypeError:  # a parameter that is not hashable
        return
