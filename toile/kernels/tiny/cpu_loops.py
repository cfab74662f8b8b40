"""Whole loops over tiny arrays as one kernel: all iterations, with the carries in registers.

The number of iterations and the distances between slices are arguments. Arrays too large for
registers are allowed if the body only reads blocks of them, or updates blocks of a carry in place;
they stay in memory. Arguments of the kernel, in 64-bit words:

  the number of iterations (of a scan); for each operand (first those that do not change, then
  carries, then slices): slot, offset, then the stride of slices, or extents and strides by axis of
  arrays in memory; strides are in bytes;
  the constants' bits
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toile.compiler.ir.geometry import room
from toile.compiler.ir.operands import Operand, Ref
from toile.compiler.plan.control_flow import prepared
from toile.compiler.plan.lower import Plan
from toile.compiler.scalar.builder import Unsupported
from toile.control.scan import Scan
from toile.control.while_loop import While
from toile.engine.program import Program
from toile.kernels.nest.shared import constant_words
from toile.kernels.tiny.cpu import LARGEST, Slices, Writer, constants_of, in_blocks, looks_tiny
from toile.kernels.tiny.cpu_blocks import Held, Stored
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch

FARTHEST = 4 * LARGEST  # the most elements that an array may extend over without being copied
NANOSECONDS = 0.25  # for each line, roughly


class _Kernel:
    """The kernel of one loop while it is being written: text and arguments grow together."""

    def __init__(self, programs: Sequence[Program], plan: Plan):
        self.plan = plan
        self.f = ir.kernel()
        self.writer = Writer(self.f)
        self.args: list[int | Ref] = []
        self.words = 0
        self.constants = constants_of(*programs)
        self.copies: list[tuple[Operand, Operand]] = []  # (target, source) pairs

    # ---- arguments
    def number(self, value: int) -> str:
        """An argument that is a number."""
        self.args.append(value)
        self.words += 1
        return self.f.argument(self.words - 1)

    def pointer(self, ref: Ref) -> str:
        """An argument that is an address."""
        self.args.append(ref)
        self.words += 2
        return self.f.buffer(self.words - 2)

    def read_constants(self) -> None:
        """Read the constants, which come last."""
        self.writer.read_constants(self.constants, self.words)
        for value in self.constants:
            self.args += constant_words(value)

    # ---- operands
    def compact(self, x: Operand, first: int = 0) -> Operand:
        """The operand, or a compact copy if its elements, from axis `first` on, are far apart."""
        shape, strides = x.shape[first:], x.strides[first:]
        if sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) <= FARTHEST:
            return x
        whole = room(self.plan, x.shape, x.dtype)
        self.copies.append((whole, x))
        return whole

    def array(self, x: Operand, stays: bool = False) -> Held:
        """An input of all iterations; if only blocks are read, it `stays` in memory."""
        if stays or x.size > LARGEST:
            return self.in_memory(x, False)
        x = self.compact(x)
        return self.writer.loaded(self.pointer(x.ref), _offsets(x.shape, x.strides), x.dtype)

    def in_memory(self, x: Operand, writable: bool) -> Stored:
        """An array that stays in memory."""
        pointer, size = self.pointer(x.ref), x.dtype.itemsize
        extents = tuple(self.number(n) for n in x.shape)
        strides = tuple(self.number(s * size) for s in x.strides)
        return Stored(pointer, extents, strides, x.dtype, writable)

    def slices(self, x: Operand, op: Scan) -> Slices:
        """An operand whose first axis is the iteration."""
        x = self.compact(x, 1)
        stride = x.strides[0] * x.dtype.itemsize
        ref = x.ref.at((op.length - 1) * stride) if op.reverse else x.ref
        pointer = self.pointer(ref)
        step = self.number(-stride if op.reverse else stride)
        return Slices(pointer, step, _offsets(x.shape[1:], x.strides[1:]), x.dtype)

    def carries(
        self, inits: Sequence[Operand], outs: Sequence[Operand], updated: Sequence[bool]
    ) -> tuple[list[Held], list[str]]:
        """Slots with the initial values of carries, and the addresses of their final values.

        Carries that are only updated are kept in their output buffers."""
        slots: list[Held] = []
        ends: list[str] = []
        for x, out, stays in zip(inits, outs, updated, strict=True):
            if stays or x.size > LARGEST:
                self.copies.append((out, x))
                slots.append(self.in_memory(out, True))
                ends.append("")
            else:
                slots.append(self.writer.slots(self.array(x)))
                ends.append(self.pointer(out.ref))
        return slots, ends

    def finish(self, slots: Sequence[Held], ends: Sequence[str], turns: int, name: str) -> None:
        """Store the last carries; stage the necessary copies, and the kernel."""
        for slot, pointer in zip(slots, ends, strict=True):
            found = self.writer.read(slot)
            if not isinstance(found, Stored):
                self.writer.store_all(found, pointer)
        for target, source in self.copies:
            self.plan.copy(target, source)
        cost = len(self.f.lines) * NANOSECONDS * turns
        text, args = native.STRAIGHT_LINE + ir.module(self.f), tuple(self.args)
        self.plan.stage(Launch(text, args, 1, 1, f"{name} in registers", cost=cost))


def _offsets(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The offsets of an array's elements, in elements, in row-major order."""
    return [sum(i * s for i, s in zip(place, strides, strict=True)) for place in np.ndindex(*shape)]


def lower_scan(op: Scan, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a scan whose body is tiny."""
    body = prepared(op.program)
    a, b = op.consts, op.consts + op.carry
    slices = [*ins[b:], *outs[op.carry:]]
    if op.length == 0 or not _fits([body], ins) or any(
        x.size > LARGEST * op.length for x in slices
    ):
        return False
    kernel = _Kernel([body], plan)
    try:
        trips = kernel.number(op.length)
        consts = [kernel.array(x, in_blocks(body, i)) for i, x in enumerate(ins[:a])]
        updated = [in_blocks(body, i, 1) for i in range(a, b)]
        slots, ends = kernel.carries(ins[a:b], outs[: op.carry], updated)
        moving = [kernel.slices(x, op) for x in slices]
        xs, ys = moving[: len(ins) - b], moving[len(ins) - b:]
        kernel.read_constants()
        kernel.writer.turns(body, trips, consts, slots, xs, ys)
    except Unsupported:
        return False
    kernel.finish(slots, ends, op.length, "scan")
    return True


def lower_while(op: While, ins: list[Operand], outs: list[Operand], plan: Plan) -> bool:
    """Lower a while loop whose condition and body are tiny."""
    cond, body = prepared(op.cond), prepared(op.body)
    if not _fits([cond, body], ins):
        return False
    a, b = op.cond_consts, op.cond_consts + op.body_consts
    kernel = _Kernel([cond, body], plan)
    try:
        consts = [kernel.array(x, in_blocks(cond, i)) for i, x in enumerate(ins[:a])]
        consts += [kernel.array(x, in_blocks(body, i)) for i, x in enumerate(ins[a:b])]
        updated = [in_blocks(body, b - a + i, 1) and in_blocks(cond, a + i)
                   for i in range(len(outs))]
        slots, ends = kernel.carries(ins[b:], outs, updated)
        kernel.read_constants()
        kernel.writer.repeat(op, consts[:a], consts[a:], slots)
    except Unsupported:
        return False
    kernel.finish(slots, ends, 1, "while")
    return True


def _fits(programs: Sequence[Program], ins: Sequence[Operand]) -> bool:
    return all(x.size for x in ins) and all(looks_tiny(p) for p in programs)
