"""Running sums, products, extrema and log-sum-exps along one axis.

Along the innermost axis each row is one sequence; along others a block of columns is processed
together, a vector at a time. A single long row is divided: sums of its blocks, a running sum of
those, then the blocks, each starting with the sum before it. float32 sums and products of long axes
run in float64, 16-bit floats in float32, as in the eager rule. A complex number is two registers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.element_types import real_part
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import Reader
from toile.kernels.cumulative.shared import running_of
from toile.targets.llvm import elements
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner

_BLOCK = 64  # columns of a block
_PART = 1 << 15  # elements of a part of a divided row
_GRAIN = 1 << 14  # approximate elements of a chunk


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Cumsum, Cumprod, Cummax, Cummin, Cumlogsumexp."""
    found = running_of(op, ins[0])
    if found is None:
        return False
    kind, dtype, wide, outer, n, inner = found
    x = plan.contiguous(ins[0])
    how = (kind, dtype, "double" if wide else elements.work_type(real_part(dtype)), op.reverse)
    args: Args = (outs[0].ref, x.ref, n, inner)
    if inner > 1:
        grain = max(1, _GRAIN // (n * min(inner, _BLOCK)))
        units = outer * -(-inner // _BLOCK)
        plan.stage(Launch(_columns_text(*how), args, units, grain, op.name))
    elif plan.threads > 1 and outer < plan.threads and n >= 4 * _PART and kind != "logsumexp":
        parts = -(-n // _PART)
        args = (*args, plan.scratch(_cell(dtype) * outer * parts), parts)
        for step, extent in (("total", outer * parts), ("before", outer), ("part", outer * parts)):
            plan.stage(Launch(_parts_text(step, *how), args, extent, 1, op.name))
    else:
        plan.stage(Launch(_rows_text(*how), args, outer, max(1, _GRAIN // n), op.name))
    return True


# ----------------------------------------------------------------------------------------- numbers


Number = tuple[str, ...]  # a register, or both parts of a complex number; or their addresses


def _cell(dtype: Any) -> int:
    """Bytes of a running value in memory."""
    return 16 if dtype.kind == "c" else 8


class _Scan:
    """Loads, combinations and stores in the type that the running value has."""

    def __init__(self, f: ir.Function, kind: str, dtype: Any, work: str, reverse: bool):
        self.f, self.kind, self.dtype, self.work, self.reverse = f, kind, dtype, work, reverse
        self.part, self.parts = real_part(dtype), 2 if dtype.kind == "c" else 1
        self.widens = work == "double" and elements.work_type(self.part) == "float"

    def load(self, pointer: str) -> Number:
        return tuple(self._load(self.f.offset(pointer, i * self.part.itemsize))
                     for i in range(self.parts))

    def _load(self, pointer: str) -> str:
        x = elements.load(self.f, self.part, pointer)
        return self.f.value(f"fpext float {x} to double") if self.widens else x

    def store(self, number: Number, pointer: str) -> None:
        for i, value in enumerate(number):
            if self.widens:
                value = self.f.value(f"fptrunc double {value} to float")
            there = self.f.offset(pointer, i * self.part.itemsize)
            elements.store(self.f, self.part, value, there)

    def variable(self, number: Number) -> Number:
        """A slot that holds a running value."""
        return tuple(self.f.variable(self.work, value) for value in number)

    def cell(self, pointer: str) -> Number:
        """The slot at an address."""
        return tuple(self.f.offset(pointer, 8 * i) for i in range(self.parts))

    def read(self, slot: Number) -> Number:
        return tuple(self.f.load(self.work, pointer) for pointer in slot)

    def write(self, number: Number, slot: Number) -> None:
        for value, pointer in zip(number, slot, strict=True):
            self.f.store(self.work, value, pointer)

    def along(self, i: str, n: str) -> str:
        """The index of step i of n."""
        return self.f.sub(self.f.sub(n, 1), i) if self.reverse else i

    def combine(self, x: Number, y: Number) -> Number:
        if self.kind == "logsumexp":
            return (self.f.value(f"call double @logaddexp(double {x[0]}, double {y[0]})"),)
        do = lambda kind, a, b: elements.combine(self.f, kind, self.part, a, b, self.work)
        if self.parts == 1:
            return (do(self.kind, x[0], y[0]),)
        (a, b), (c, d) = x, y
        return (do("sub", do("mul", a, c), do("mul", b, d)),
                do("add", do("mul", a, d), do("mul", b, c)))


def _logaddexp() -> str:
    """log(exp(a) + exp(b)) = max + log1p(exp(-|a - b|)); equal infinities and NaN by their sum."""
    f = ir.inner("logaddexp", "double %a, double %b", result="double")
    top = f.value("call double @llvm.maximum.f64(double %a, double %b)")
    gap = f.value("fsub double %a, %b")
    size = f.value(f"call double @llvm.fabs.f64(double {gap})")
    e = f.value(f"call double @llvm.exp.f64(double {f.value(f'fneg double {size}')})")
    more = f.value(f"call double @log1p(double {e})")
    nan = f.value(f"fcmp uno double {gap}, {gap}")
    plain = f.value(f"fadd double {top}, {more}")
    # inf - inf is NaN: the sum keeps infinities and NaN, to which adding log(2) makes no difference
    both = f.value("fadd double %a, %b")
    f.result = "double " + f.select(nan, both, plain, "double")
    return f.text() + "declare double @log1p(double)\n"


def _module(kind: str, *functions: ir.Function) -> str:
    return (_logaddexp() if kind == "logsumexp" else "") + ir.module(*functions)


# ----------------------------------------------------------------------------------------- kernels


@lru_cache(maxsize=128)
def _rows_text(kind: str, dtype: Any, work: str, reverse: bool) -> str:
    """Each unit is a row."""
    f, body = ir.kernel(), _row_function(kind, dtype, work, reverse)
    r = Reader(f)
    out, x, n, _ = r.buffer(), r.buffer(), r.one(), r.one()
    bytes = f.mul(n, dtype.itemsize)
    with f.loop("%lo", "%hi") as row:
        offset = f.mul(row, bytes)
        f.call(body, f.offset(out, offset), f.offset(x, offset), n)
    return _module(kind, body, f)


def _row_function(kind: str, dtype: Any, work: str, reverse: bool) -> ir.Function:
    """One row from its first element on."""
    body = ir.inner("row", "ptr noalias %out, ptr noalias %x, i64 %n")
    s = _Scan(body, kind, dtype, work, reverse)
    first = body.mul(s.along("0", "%n"), dtype.itemsize)
    value = s.load(body.offset("%x", first))
    s.store(value, body.offset("%out", first))
    total = s.variable(value)
    with body.loop(1, "%n", vectorize=False) as i:
        at = body.mul(s.along(i, "%n"), dtype.itemsize)
        value = s.combine(s.read(total), s.load(body.offset("%x", at)))
        s.write(value, total)
        s.store(value, body.offset("%out", at))
    return body


@lru_cache(maxsize=128)
def _columns_text(kind: str, dtype: Any, work: str, reverse: bool) -> str:
    """Each unit is a block of columns, whose running values are on the stack."""
    f, size = ir.kernel(), dtype.itemsize
    body = ir.inner("step", "ptr noalias %out, ptr noalias %x, ptr noalias %totals, i64 %n, "
                    "i64 %first")
    s = _Scan(body, kind, dtype, work, reverse)
    r = Reader(f)
    out, x, n, inner = r.buffer(), r.buffer(), r.one(), r.one()
    blocks = f.udiv(f.add(inner, _BLOCK - 1), _BLOCK)
    totals = f.alloca(work, _BLOCK * s.parts, 64)
    with f.loop("%lo", "%hi") as unit:
        outer, block = f.divided(unit, blocks)
        column = f.mul(block, _BLOCK)
        width = f.smin(f.sub(inner, column), _BLOCK)
        base = f.add(f.mul(f.mul(outer, n), inner), column)
        with f.loop(0, n) as i:
            place = _Scan(f, kind, dtype, work, reverse).along(i, n)
            at = f.mul(f.add(base, f.mul(place, inner)), size)
            first = f.value(f"zext i1 {f.compare('eq', i, 0)} to i64")
            f.call(body, f.offset(out, at), f.offset(x, at), totals, width, first)
    starts = body.compare("ne", "%first", 0)
    for begins in (True, False):
        with body.when(starts) if begins else body.unless(starts):
            with body.loop(0, "%n", vectorize=kind != "logsumexp") as j:
                at = body.mul(j, size)
                value = s.load(body.offset("%x", at))
                first = body.mul(j, s.parts)
                cell = tuple(body.at("%totals", body.add(first, k), work) for k in range(s.parts))
                if not begins:
                    value = s.combine(s.read(cell), value)
                s.write(value, cell)
                s.store(value, body.offset("%out", at))
    return _module(kind, body, f)


@lru_cache(maxsize=128)
def _parts_text(step: str, kind: str, dtype: Any, work: str, reverse: bool) -> str:
    """One step of divided rows: the total of a part, totals before parts, or a part's values."""
    f = ir.kernel()
    r = Reader(f)
    out, x, n, _ = r.buffer(), r.buffer(), r.one(), r.one()
    totals, parts = r.buffer(), r.one()
    s = _Scan(f, kind, dtype, work, reverse)
    with f.loop("%lo", "%hi") as unit:
        if step == "before":
            _totals_before(s, totals, unit, parts)
        else:
            _part(s, step == "part", out, x, n, totals, parts, unit)
    return ir.module(f)


def _totals_before(s: _Scan, totals: str, row: str, parts: str) -> None:
    """Running totals of a row's parts: entry i becomes the start value of part i + 1."""
    f, size = s.f, _cell(s.dtype)
    first = f.step(totals, f.mul(row, parts), size)
    with f.loop(1, parts, vectorize=False) as i:
        before, here = (s.cell(f.step(first, f.add(i, k), size)) for k in (-1, 0))
        s.write(s.combine(s.read(before), s.read(here)), here)


def _part(
    s: _Scan, writes: bool, out: str, x: str, n: str, totals: str, parts: str, unit: str
) -> None:
    """One part of a row: its total, or its running values after those of earlier parts."""
    f, size = s.f, s.dtype.itemsize
    row, number = f.divided(unit, parts)
    start, end = f.part(number, _PART, n)
    cell = f.step(totals, unit, _cell(s.dtype))

    def place(i: str) -> str:
        return f.mul(f.add(f.mul(row, n), s.along(i, n)), size)

    value = s.load(f.offset(x, place(start)))
    total = s.variable(value)
    if writes:
        with f.when(f.compare("ne", number, 0)):
            before = s.read(s.cell(f.offset(cell, -_cell(s.dtype))))
            s.write(s.combine(before, value), total)
        s.store(s.read(total), f.offset(out, place(start)))
    with f.loop(f.add(start, 1), end, vectorize=False) as i:
        at = place(i)
        value = s.combine(s.read(total), s.load(f.offset(x, at)))
        s.write(value, total)
        if writes:
            s.store(value, f.offset(out, at))
    if not writes:
        s.write(s.read(total), s.cell(cell))
