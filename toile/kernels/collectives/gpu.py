"""Collectives as steps of a GPU's plan: inputs and outputs are contiguous.

The step asks the exchange of the device that runs the Program (`engine.exchange`) to put the work
on the stream; this module does not know the transport. Copies move axes to the front before, and
back to their places afterwards. Reductions that no transport can do (of 16-bit integers, extrema of
complex numbers) are declined: they run on the host.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from toile.compiler.ir.geometry import permuted, room
from toile.compiler.ir.operands import Operand
from toile.engine import dtypes
from toile.engine.exchange import Groups, Span
from toile.engine.trace import axis_size
from toile.targets.cuda.driver import driver
from toile.targets.cuda.launches import Call, Pointers

SUMMED = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
          "float64", "bool", "complex64", "complex128")  # fmt: skip


class _HostCall(Call):
    """A call before which the devices synchronize on the host, so that it cannot be in a graph."""

    capturable = False


def _buffers(operands: Iterable[Operand]) -> frozenset[Any]:
    return frozenset(x.ref.buffer for x in operands)


@dataclass(frozen=True)
class Collective(_HostCall):
    """A collective on buffers; the first one among the same devices creates their communicators."""

    op: Any
    kind: str
    sources: tuple[Operand, ...]
    targets: tuple[Operand, ...]
    axes: tuple[Any, ...]
    groups: Groups = None
    perm: tuple[tuple[int, int], ...] = ()
    note: str = field(default="collective", compare=False)

    @property
    def reads(self) -> frozenset[Any]:
        return _buffers(self.sources)

    @property
    def writes(self) -> frozenset[Any]:
        return _buffers(self.targets)

    def run(self, pointer: Pointers, stream: int) -> None:
        def spans(operands: Sequence[Operand]) -> list[Span]:
            return [Span(pointer(x.ref), x.shape, x.dtype) for x in operands]

        self.op.exchange().issue(self.kind, spans(self.sources), spans(self.targets), self.axes,
                                 self.groups, self.perm, stream)


@dataclass(frozen=True)
class AxisIndexCall(_HostCall):
    """Writes the device's position along an axis into a result."""

    op: Any
    target: Operand
    note: str = field(default="axis_index", compare=False)
    reads = frozenset[Any]()

    @property
    def writes(self) -> frozenset[Any]:
        return _buffers([self.target])

    def run(self, pointer: Pointers, stream: int) -> None:
        value = ctypes.c_int32(self.op.exchange().index(self.op.axis))
        driver().upload(pointer(self.target.ref), ctypes.addressof(value), 4, stream)


def _can_reduce(kind: str, dtype: Any) -> bool:
    return dtypes.name_of(dtype) in SUMMED and (kind == "sum" or dtypes.kind(dtype) != "c")


def lower_all_reduce(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """Sums or extrema of one or several operands."""
    if not all(_can_reduce(op.kind, x.dtype) for x in ins):
        return False
    sources = tuple([plan.contiguous(x) for x in ins])
    plan.call(Collective(op, op.kind, sources, tuple(outs), op.axes, op.groups, note=f"p{op.kind}"))
    return True


class AllReduceStart(_HostCall):
    """Starts an all-reduce on a second stream; `targets` are set when its end is lowered."""

    note = "psum begins"

    def __init__(self, op: Any, sources: Sequence[Operand], token: Operand):
        self.op, self.sources = op, tuple(sources)
        self.targets: tuple[Operand, ...] = ()
        self.reads, self.writes = _buffers(sources), _buffers([token])

    def run(self, pointer: Pointers, stream: int) -> None:
        op = self.op
        side = op.exchange().beside(op.axes, op.groups)
        if side is not None:
            driver().wait(side, stream)
        call = Collective(op, op.kind, self.sources, self.targets, op.axes, op.groups)
        call.run(pointer, stream if side is None else side)


class AllReduceWait(_HostCall):
    """Waits for an all-reduce that was started; its buffers are in use until then."""

    note = "psum ends"

    def __init__(self, start: AllReduceStart):
        self.op = start.op
        self.reads, self.writes = start.reads | start.writes, _buffers(start.targets)

    def run(self, pointer: Pointers, stream: int) -> None:
        side = self.op.exchange().beside(self.op.axes, self.op.groups)
        if side is not None:
            driver().wait(stream, side)


def lower_begin(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """Lower the start of an all-reduce of several operands."""
    if not all(_can_reduce(op.kind, x.dtype) for x in ins):
        return False
    plan.call(AllReduceStart(op, [plan.contiguous(x) for x in ins], outs[0]))
    plan.started[outs[0].ref] = plan.steps[-1]
    return True


def lower_end(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """Lower the end of an all-reduce; its results may be written as soon as it has started."""
    step = plan.started.get(ins[0].ref)
    if step is None:
        return False
    step.call.targets = tuple(outs)
    step.writes |= {x.ref.buffer for x in outs}
    plan.call(AllReduceWait(step.call))
    return True


def _size(op: Any) -> int:
    return len(op.groups[0]) if op.groups else axis_size(op.axis)


def _moved(x: Operand, source: int, target: int) -> Operand:
    """The array with one axis moved."""
    order = [i for i in range(len(x.shape)) if i != source]
    order.insert(target, source)
    return permuted(x, order)


def _split(x: Operand, axis: int, parts: int) -> Operand:
    """The array with an axis split into (parts, rest)."""
    n, s = x.shape[axis] // parts, x.strides[axis]
    return x._replace(shape=(*x.shape[:axis], parts, n, *x.shape[axis + 1 :]),
                      strides=(*x.strides[:axis], n * s, s, *x.strides[axis + 1 :]))


def _exchange(op: Any, kind: str, source: Operand, out: Operand, axis: int, plan: Any) -> bool:
    """Lower a collective; the first axis of its result is moved to `axis` of an output."""
    source = plan.contiguous(source)
    view = _moved(out, axis, 0)
    target = view if view.contiguous else room(plan, view.shape, out.dtype)
    plan.call(Collective(op, kind, (source,), (target,), (op.axis,), op.groups, note=op.name))
    if target is not view:
        plan.copy(view, target)
    return True


def lower_all_gather(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """The arrays of all devices, stacked along a new axis or joined along an existing one."""
    (x,), (out,) = ins, outs
    if op.tiled:
        out = _split(out, op.dim, _size(op))
    return _exchange(op, "gather", x, out, op.dim, plan)


def lower_reduce_scatter(
    op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any
) -> bool:
    """A sum of which each device gets a part."""
    (x,), (out,) = ins, outs
    if not _can_reduce("sum", x.dtype):
        return False
    if op.tiled:
        x = _split(x, op.dim, _size(op))
    source = plan.contiguous(_moved(x, op.dim, 0))
    plan.call(Collective(op, "scatter", (source,), (out,), (op.axis,), op.groups, note=op.name))
    return True


def lower_all_to_all(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """Parts of one axis exchanged for parts of another."""
    (x,), (out,) = ins, outs
    n = _size(op)
    source = _moved(_split(x, op.split_axis, n), op.split_axis, 0)
    return _exchange(op, "exchange", source, _split(out, op.concat_axis, n), op.concat_axis, plan)


def lower_permute(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """Each device's array sent to another one."""
    source = plan.contiguous(ins[0])
    plan.call(Collective(op, "permute", (source,), tuple(outs), (op.axis,), None, op.perm, op.name))
    return True


def lower_axis_index(op: Any, ins: Sequence[Operand], outs: Sequence[Operand], plan: Any) -> bool:
    """The device's position along an axis."""
    plan.call(AxisIndexCall(op, outs[0]))
    return True
