"""Eager operations on a GPU: each is a Program of one equation, compiled once for its operands.

So an operation means on a GPU what it means inside jit, whatever CuPy would make of it. Numbers
that come from the host are constants of the Program. An operation runs on a GPU if an operand lies
there, or if the default device is one and what it makes or reads is large; all else is the host's.
May import engine.program and below.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import gpu
from toile.engine.arrays import ConcreteArray, DeviceArray
from toile.engine.avals import aval_of
from toile.engine.config import flags
from toile.engine.conversion import as_array, wrap_aval
from toile.engine.gpu_arrays import FEW, GpuArray, on_gpu, operators, placed
from toile.engine.operation import Operation, infer_list
from toile.engine.program import Equation, Literal, Program, Var, execute
from toile.engine.sharded import layout
from toile.engine.trace import state

MOST = 4096  # Programs that are kept
_programs: OrderedDict[Any, Program] = OrderedDict()


def device_for(op: Operation, arrays: Sequence[Any]) -> gpu.GpuDevice | None:
    """The GPU that an operation runs on; None: the host."""
    for x in arrays:
        if on_gpu(x):
            return gpu.device_of(x._data)
    default = gpu.default_gpu()
    if default is None or any(getattr(x, "committed", False) for x in arrays):
        return None
    made = getattr(op, "shape", ())
    sizes = [math.prod(made) if isinstance(made, tuple) else 0, *(x.size for x in arrays)]
    return default if max(sizes) > FEW else None


class _Quick:
    """A slot that `staging` fills: the quick way of a Program that has run on a device, a function
    of the operands' pointers and memory; None where there is none."""

    way_of: Callable[[Program, gpu.GpuDevice, bool], Any] = staticmethod(
        lambda program, device, multiple: None
    )


quick = _Quick()
_ways: dict[Any, Any] = {}  # quick ways by operation and operands; None: it has run once


def _known(op: Operation, args: Sequence[Any]) -> tuple[Any, list[Any]]:
    """What tells operations on such operands apart, and the operands on GPUs; None: nothing does.
    """
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
    """The results of an operation whose quick way is known, or NotImplemented."""
    key, on = _known(op, args)
    if key is None:
        return NotImplemented
    try:
        way = _ways.get(key)
    except TypeError:  # a parameter that cannot be hashed
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
    """An operation on one array of a GPU, whose dtype it accepts."""
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


def run(op: Operation, args: Sequence[Any]) -> Any:
    """The results of an operation on a GPU, or NotImplemented."""
    found = quickly(op, args)
    if found is not NotImplemented:
        return found
    arrays = [a if isinstance(a, ConcreteArray) else as_array(a) for a in args]
    device = device_for(op, arrays)
    if device is None:
        return NotImplemented
    fixed = [x.__class__ is DeviceArray and not x.shape for x in arrays]
    program = _program(op, arrays, fixed)
    raws = [placed(x, device)._data for x, f in zip(arrays, fixed, strict=True) if not f]
    results = execute(program, raws)
    wrap = layout(op, arrays) or wrap_aval
    outs = [wrap(r, o.aval) for r, o in zip(results, program.outputs, strict=True)]
    if wrap is wrap_aval:
        _learn(_known(op, args)[0], program, device, op.multiple)
    return outs if op.multiple else outs[0]


def _learn(key: Any, program: Program, device: gpu.GpuDevice, multiple: bool) -> None:
    """At the second call make the quick way of the later ones."""
    if key is None:
        return
    if len(_ways) >= MOST:
        _ways.clear()
    try:
        _ways[key] = quick.way_of(program, device, multiple) or 0 if key in _ways else None
    except TypeError:  # a parameter that cannot be hashed
        return


def _program(op: Operation, arrays: Sequence[Any], fixed: Sequence[bool]) -> Program:
    avals = [aval_of(x) for x in arrays]
    values = tuple(x._data.tobytes() if f else None for x, f in zip(arrays, fixed, strict=True))
    key: Any = (op, tuple((a.shape, a.dtype, a.weak_type) for a in avals), values)
    try:
        found = _programs.get(key)
    except TypeError:  # a parameter that cannot be hashed
        key = found = None
    if found is None:
        ins: list[Any] = [
            Literal(x._data, a) if f else Var(a)
            for x, a, f in zip(arrays, avals, fixed, strict=True)
        ]
        outs = [Var(a) for a in infer_list(op, avals)]
        inputs = [v for v in ins if v.__class__ is Var]
        found = Program(inputs, [Equation(op, ins, outs)], outs, op.name)
        if key is not None:
            _programs[key] = found
            if len(_programs) > MOST:
                _programs.popitem(last=False)
    return found
