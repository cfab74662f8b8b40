"""Running sums, products, extrema and log-sum-exps along one axis, and linear recurrences.

Along the innermost axis each row is one sequence; along others a block of columns is processed
together, a vector at a time. If there are only a few long rows, they are divided: totals of their
parts, running totals of these, then the parts, each starting with the total before it. A recurrence
computes several rows at once, because each of its steps waits for the one before. float32 sums,
products and recurrences of long axes run in float64, 16-bit floats in float32, as in the eager
rule. A complex number takes two registers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from toile.compiler.ir.element_types import real_part
from toile.compiler.ir.extents import larger, smaller
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import Reader
from toile.kernels.cumulative.shared import running_of, shift_of
from toile.targets.llvm import elements
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner

_BLOCK = 64  # columns of a block
_PART = 1 << 15  # elements of a part of a divided row
_GRAIN = 1 << 14  # approximate elements of a chunk
_ROWS = 4  # rows of a recurrence that are computed together


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Cumsum, Cumprod, Cummax, Cummin, Cumlogsumexp."""
    return _lower(op, ins[0], None, outs[0], plan)


def lower_recurrence(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """LinearRecurrence."""
    return _lower(op, ins[1], ins[0], outs[0], plan)


def _lower(op: Any, x: Operand, a: Operand | None, out: Operand, plan: Planner) -> bool:
    """Running values of x; `a` are the coefficients of a recurrence."""
    found = running_of(op, x)
    if found is None:
        return False
    kind, dtype, wide, outer, n, inner = found
    how = (kind, dtype, "double" if wide else elements.work_type(real_part(dtype)), op.reverse)
    args: Args = (out.ref, plan.contiguous(x).ref, n, inner)
    rows = 1
    if a is not None:
        args = (*args, plan.contiguous(a).ref, shift_of(op, inner), outer)
        rows = _ROWS if outer >= _ROWS else 1
    if inner > 1:
        grain = larger(1, _GRAIN // (n * smaller(inner, _BLOCK)))
        units = outer * -(-inner // _BLOCK)
        plan.stage(Launch(_columns_text(*how), args, units, grain, op.name))
    elif plan.threads > 1 and outer < plan.threads and n >= 4 * _PART and (
            kind not in ("logsumexp", "recurrence")):
        parts = -(-n // _PART)
        args = (*args, plan.scratch(_cell(dtype) * outer * parts), parts)
        for step, extent in (("total", outer * parts), ("before", outer), ("part", outer * parts)):
            plan.stage(Launch(_parts_text(step, *how), args, extent, 1, op.name))
    else:
        units, grain = -(-outer // rows), larger(1, _GRAIN // (n * rows))
        plan.stage(Launch(_rows_text(*how, rows), args, units, grain, op.name))
    return True


# ----------------------------------------------------------------------------------------- numbers


Number = tuple[str, ...]  # a register, or both parts of a complex number; or their addresses


def _cell(dtype: Any) -> int:
    """Bytes of a running value in memory."""
    return 16 if dtype.kind == "c" else 8


class _Scan:
    """Loads, combines and stores numbers in the type of the running value."""

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

    def following(self, state: Number, x: str, a: str) -> Number:
        """The running value after `state`; x and a are the addresses of the element and of its
        coefficient."""
        if self.kind != "recurrence":
            return self.combine(state, self.load(x))
        (*h,), (*c,), (*b,) = state, self.load(a), self.load(x)
        if self.parts == 1:
            return (self.plus_product(b[0], c[0], h[0]),)
        minus = self.f.value(f"fneg {self.work} {c[1]}")
        return (self.plus_product(self.plus_product(b[0], c[0], h[0]), minus, h[1]),
                self.plus_product(self.plus_product(b[1], c[0], h[1]), c[1], h[0]))

    def plus_product(self, total: str, x: str, y: str) -> str:
        if self.part.kind in "iu":
            product = elements.combine(self.f, "mul", self.part, x, y)
            return elements.combine(self.f, "add", self.part, total, product)
        return self.f.multiply_add(x, y, total, self.work)

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


def _coefficients(f: ir.Function, r: Reader, kind: str, dtype: Any, x: str) -> tuple[str, str]:
    """Where the coefficient of the first element is, and the number of rows; `x` and "" if there
    are no coefficients."""
    if kind != "recurrence":
        return x, ""
    a, shift, outer = r.buffer(), r.one(), r.one()
    return f.step(a, shift, dtype.itemsize), outer


@lru_cache(maxsize=128)
def _rows_text(kind: str, dtype: Any, work: str, reverse: bool, rows: int) -> str:
    """Each unit is some rows; in place of rows after the last one, that row is computed again."""
    f, body = ir.kernel(), _row_function(kind, dtype, work, reverse, rows)
    r = Reader(f)
    out, x, n, _ = r.buffer(), r.buffer(), r.one(), r.one()
    a, outer = _coefficients(f, r, kind, dtype, x)
    bytes = f.mul(n, dtype.itemsize)
    with f.loop("%lo", "%hi") as unit:
        row = f.mul(unit, rows)
        offsets = [f.mul(row, bytes)]
        for k in range(1, rows):
            offsets.append(f.mul(f.smin(f.add(row, k), f.sub(outer, 1)), bytes))
        f.call(body, out, x, a, n, *offsets)
    return _module(kind, body, f)


def _row_function(kind: str, dtype: Any, work: str, reverse: bool, rows: int) -> ir.Function:
    """Rows at some offsets, from their first elements on."""
    offsets = [f"%o{k}" for k in range(rows)]
    body = ir.inner("row", ", ".join(["ptr noalias %out, ptr noalias %x, ptr noalias %a, i64 %n",
                                      *(f"i64 {o}" for o in offsets)]))
    s = _Scan(body, kind, dtype, work, reverse)
    first = body.mul(s.along("0", "%n"), dtype.itemsize)
    totals = []
    for o in offsets:
        at = body.add(o, first)
        value = s.load(body.offset("%x", at))
        s.store(value, body.offset("%out", at))
        totals.append(s.variable(value))
    with body.loop(1, "%n", vectorize=False) as i:
        along = body.mul(s.along(i, "%n"), dtype.itemsize)
        for o, total in zip(offsets, totals, strict=True):
            at = body.add(o, along)
            value = s.following(s.read(total), body.offset("%x", at), body.offset("%a", at))
            s.write(value, total)
            s.store(value, body.offset("%out", at))
    return body


@lru_cache(maxsize=128)
def _columns_text(kind: str, dtype: Any, work: str, reverse: bool) -> str:
    """Each unit is a block of columns, whose running values are on the stack."""
    f, size = ir.kernel(), dtype.itemsize
    body = ir.inner("step", "ptr noalias %out, ptr noalias %x, ptr noalias %a, "
                    "ptr noalias %totals, i64 %n, i64 %first")
    s = _Scan(body, kind, dtype, work, reverse)
    r = Reader(f)
    out, x, n, inner = r.buffer(), r.buffer(), r.one(), r.one()
    a, _ = _coefficients(f, r, kind, dtype, x)
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
            f.call(body, *(f.offset(p, at) for p in (out, x, a)), totals, width, first)
    starts = body.compare("ne", "%first", 0)
    for begins in (True, False):
        with body.when(starts) if begins else body.unless(starts):
            with body.loop(0, "%n", vectorize=kind != "logsumexp") as j:
                at = body.mul(j, size)
                first = body.mul(j, s.parts)
                cell = tuple(body.at("%totals", body.add(first, k), work) for k in range(s.parts))
                item = body.offset("%x", at)
                value = s.load(item) if begins else (
                    s.following(s.read(cell), item, body.offset("%a", at)))
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
