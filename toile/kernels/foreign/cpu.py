"""Calls of C functions, which kernels reach by their symbols: no Python runs between steps."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import Reader
from toile.primitives.foreign_calls import C_TYPES
from toile.targets.llvm import native
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch

# How the caller widens small integers that it passes by value.
_WIDENED = {"int8": "signext", "int16": "signext", "uint8": "zeroext", "uint16": "zeroext",
            "bool": "zeroext"}


def _stage(op: Any, text: str, args: Args, units: int, plan: Any) -> None:
    """Add a launch; a function that is not `parallel` runs on one thread."""
    grain = max(1, -(-units // (4 * plan.threads))) if op.parallel else units
    plan.stage(Launch(text, args, units, grain, op.label))


def _strides(op: Any, arrays: list[Operand]) -> list[int]:
    """The bytes from one example to the next in each array."""
    if op.batch is None:
        return [0] * len(arrays)
    mapped = (*op.mapped, *(True for _ in op.avals))
    return [x.size // op.batch * x.dtype.itemsize if m else 0
            for x, m in zip(arrays, mapped, strict=True)]


def _kernel(symbol: str, result: str, types: tuple[str, ...], f: ir.Function) -> str:
    declared = f"declare {result} @{symbol}({', '.join(types)})\n"
    return native.WRITTEN_OUT + declared + ir.module(f)


def lower_prototype(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Calls with pointers and numbers."""
    units = 1 if op.batch is None else op.batch
    if not units:
        return False
    arrays = [*map(plan.contiguous, ins), *outs]
    kinds = tuple(kind if kind in ("in", "out") else C_TYPES[kind][1] for kind, _ in op.parameters)
    places = tuple(n + len(ins) * (kind == "out") if kind in ("in", "out") else -1
                   for kind, n in op.parameters)
    numbers = [n for kind, n in op.parameters if kind not in ("in", "out")]
    args: Args = (*(x.ref for x in arrays), *_strides(op, arrays), *numbers)
    _stage(op, _prototype_text(op.symbol, len(arrays), kinds, places), args, units, plan)
    return True


@cache
def _prototype_text(symbol: str, arrays: int, kinds: tuple[str, ...], places: tuple[int, ...]
                    ) -> str:
    f = ir.kernel()
    r = Reader(f)
    bases = [r.buffer() for _ in range(arrays)]
    steps = r.many(arrays)
    numbers = {i: _number(f, kind, r.one()) for i, (kind, at) in
               enumerate(zip(kinds, places, strict=True)) if at < 0}
    types = tuple("ptr" if at >= 0 else _passed(kind)
                  for kind, at in zip(kinds, places, strict=True))
    with f.loop("%lo", "%hi") as unit:
        pointers = [f.offset(p, f.mul(unit, step)) for p, step in zip(bases, steps, strict=True)]
        given = ", ".join(f"{type} {numbers[i] if at < 0 else pointers[at]}" for i, (type, at) in
                          enumerate(zip(types, places, strict=True)))
        f.do(f"call void @{symbol}({given})")
    return _kernel(symbol, "void", types, f)


def _passed(type: str) -> str:
    """The type by which a number is passed: C widens small integers."""
    return "i32" if type in ("i8", "i16") else type


def _number(f: ir.Function, type: str, word: str) -> str:
    """A number from the 64 bits that hold it."""
    if type == "i64":
        return word
    if type == "double":
        return f.value(f"bitcast i64 {word} to double")
    low = f.value(f"trunc i64 {word} to i32")
    return f.value(f"bitcast i32 {low} to float") if type == "float" else low


def lower_buffers(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """Calls with an array of pointers, their shapes and the attributes."""
    units = 1 if op.batch is None else op.batch
    if not units:
        return False
    arrays = [*map(plan.contiguous, ins), *outs]
    aliases = tuple((i, len(ins) + j) for i, j in op.aliases)
    copied = [outs[j].size // units * outs[j].dtype.itemsize for _, j in op.aliases]
    tables = [plan.table(table) for table in (op.sizes, np.array(op.attributes or (0,), np.int64))]
    args: Args = (*(x.ref for x in arrays), *tables, *_strides(op, arrays), *copied)
    _stage(op, _buffers_text(op.symbol, len(arrays), aliases), args, units, plan)
    return True


@cache
def _buffers_text(symbol: str, arrays: int, aliases: tuple[tuple[int, int], ...]) -> str:
    f = ir.kernel()
    r = Reader(f)
    bases = [r.buffer() for _ in range(arrays)]
    shapes, attributes = r.buffer(), r.buffer()
    steps, copied = r.many(arrays), r.many(len(aliases))
    table = f.alloca("ptr", max(1, arrays))
    with f.loop("%lo", "%hi") as unit:
        pointers = [f.offset(p, f.mul(unit, step)) for p, step in zip(bases, steps, strict=True)]
        for (i, j), nbytes in zip(aliases, copied, strict=True):
            f.copy(pointers[j], pointers[i], nbytes)
            pointers[i] = pointers[j]
        for i, pointer in enumerate(pointers):
            f.store("ptr", pointer, f.at(table, i, "ptr"))
        f.do(f"call void @{symbol}(ptr {table}, ptr {shapes}, ptr {attributes})")
    return _kernel(symbol, "void", ("ptr", "ptr", "ptr"), f)


def lower_elements(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """A call for each element."""
    if not op.count:
        return False
    arrays = [*outs, *map(plan.contiguous, ins)]
    args: Args = tuple(x.ref for x in arrays)
    types = tuple((C_TYPES[x.dtype.name][1], _WIDENED.get(x.dtype.name, "")) for x in arrays)
    _stage(op, _elements_text(op.symbol, types), args, op.count, plan)
    return True


@cache
def _elements_text(symbol: str, types: tuple[tuple[str, str], ...]) -> str:
    f = ir.kernel()
    r = Reader(f)
    out, *ins = (r.buffer() for _ in types)
    (result, _), *given = types
    with f.loop("%lo", "%hi") as i:
        xs = ", ".join(f"{t} {wide} {f.load(t, f.at(x, i, t))}"
                       for x, (t, wide) in zip(ins, given, strict=True))
        f.store(result, f.value(f"call {result} @{symbol}({xs})"), f.at(out, i, result))
    return _kernel(symbol, result, tuple(f"{t} {wide}" for t, wide in given), f)


def lower_cuda(op: Any, ins: list[Operand], outs: list[Operand], plan: Any) -> bool:
    """CUDA kernels do not run here; the error names an alternative."""
    return False
