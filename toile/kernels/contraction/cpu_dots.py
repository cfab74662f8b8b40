"""Contractions that are not matrix products: dots, and sums of products along C's last axis.

A *sweep* runs along the innermost axis of C (outer and elementwise products, batches innermost); a
*dot* runs along the summed axis, in parts that are added in order. Outer axes are extents with a
stride per operand, as `cpu_tiles.outer_offsets` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache

from toile.kernels.contraction.cpu_tiles import outer_offsets
from toile.targets.llvm.product_types import Element, convert, plus, plus_product
from toile.targets.llvm.text import NOINLINE, Function, inner, kernel, module, typed

BLOCK = 512  # elements of C that a sweep holds at a time
_LANES = 64, 16, 4, 1  # sums of a row that are held in registers, while as many are left
_FLAGS = {"f": "reassoc contract"}
_ROWS = "ptr noalias %to, ptr noalias %x, ptr noalias %y, i64 %sx, i64 %sy, i64 %n"
_CAST = "ptr noalias %to, ptr noalias %from, i64 %n"


def stride_class(stride: int) -> int:
    """The stride as texts know it: 0 and 1 are compiled in; 2 represents any other stride."""
    return stride if stride in (0, 1) else 2


def _factors(f: Function, i: str, types: tuple[Element, Element], strides: tuple[int, int],
             work: Element) -> list[str]:
    """Elements i of the rows %x and %y, in the accumulator type."""
    places = [f.at(f"%{name}", i if stride == 1 else f.mul(i, f"%s{name}") if stride else "0",
                   t.llvm)
              for name, t, stride in zip("xy", types, strides, strict=True)]
    return [convert(f, f.load(t.llvm, place, t.size), t, work)
            for t, place in zip(types, places, strict=True)]


def _summed(f: Function, stack: ExitStack, count: int, first: int, pointers: list[str],
            types: tuple[Element, ...]) -> list[str]:
    """Loops over summed axes (extent, stride of a, stride of b); returns the addresses inside."""
    for axis in range(count):
        at = first + 3 * axis
        index = stack.enter_context(f.loop(0, f.argument(at), vectorize=False))
        pointers = [f.step(p, f.mul(index, f.argument(at + 1 + i)), t.size)
                    for i, (p, t) in enumerate(zip(pointers, types, strict=True))]
    return pointers


def _row_function(a: Element, b: Element, c: Element, work: Element, strides: tuple[int, int],
                  adds: bool) -> Function:
    """to[i] (+)= x[i] y[i] along a row; sums are held in the accumulator type."""
    f = inner("row", _ROWS, NOINLINE)
    with f.loop(0, "%n", vectorize=True) as i:
        left, right = _factors(f, i, (a, b), strides, work)
        if adds:
            place = f.at("%to", i, work.llvm)
            old = f.load(work.llvm, place, work.size)
            f.store(work.llvm, plus_product(f, work, old, left, right), place, work.size)
        else:
            how = {"f": "fmul", "b": "and"}.get(work.kind, "mul")
            value = f.value(f"{how} {work.llvm} {left}, {right}")
            f.store(c.llvm, convert(f, value, work, c), f.at("%to", i, c.llvm), c.size)
    return f


@cache
def sweep(a: Element, b: Element, c: Element, work: Element, strides: tuple[int, int],
          summed: int) -> str:
    """Units are blocks of rows of C.

    Arguments: refs of a, b, c; row length, blocks of a row, strides of a and b along it; summed
    axes (extent, a, b); outer axes."""
    if summed and {a, b, c} == {work} and work.kind == "f" and {*strides} == {0, 1}:
        return _sums_in_registers(work, strides, summed)
    f, row = kernel(), _row_function(a, b, c, work, strides, bool(summed))
    bases = [f.buffer(i) for i in (0, 2, 4)]
    length, blocks, sx, sy = (f.argument(i) for i in range(6, 10))
    held = f.alloca(work.llvm, BLOCK, 64) if summed else ""
    with f.loop("%lo", "%hi") as unit:
        rest, block = f.udiv(unit, blocks), f.urem(unit, blocks)
        x, y, to = outer_offsets(f, rest, 10 + 3 * summed, bases, (a, b, c))
        start = f.mul(block, BLOCK)
        count = f.smin(f.sub(length, start), BLOCK)
        x, y = f.at(x, f.mul(start, sx), a.llvm), f.at(y, f.mul(start, sy), b.llvm)
        to = f.at(to, start, c.llvm)
        if summed:
            with f.loop(0, count) as i:
                f.store(work.llvm, work.zero, f.at(held, i, work.llvm), work.size)
        with ExitStack() as loops:
            px, py = _summed(f, loops, summed, 10, [x, y], (a, b))
            f.call(row, held or to, px, py, sx, sy, count)
        if summed:
            with f.loop(0, count) as i:
                value = f.load(work.llvm, f.at(held, i, work.llvm), work.size)
                f.store(c.llvm, convert(f, value, work, c), f.at(to, i, c.llvm), c.size)
    return module(row, f)


def _sums_in_registers(t: Element, strides: tuple[int, int], summed: int) -> str:
    """A sweep over sums of floats, in which a number is multiplied by a part of a row at a time.

    The sums of such a part stay in registers. The arguments are those of `sweep`."""
    f = kernel()
    bases = [f.buffer(i) for i in (0, 2, 4)]
    length, blocks = f.argument(6), f.argument(7)
    with f.loop("%lo", "%hi") as unit:
        rest, block = f.udiv(unit, blocks), f.urem(unit, blocks)
        pointers = outer_offsets(f, rest, 10 + 3 * summed, bases, (t, t, t))
        place = f.mul(block, BLOCK)
        end = f.smin(length, f.add(place, BLOCK))
        for lanes in _LANES:
            left = f.sub(end, place)
            whole = f.add(place, f.sub(left, f.urem(left, lanes)))
            with f.loop(place, whole, lanes, vectorize=False) as i:
                _part_of_row(f, t, i, lanes, pointers, strides, summed)
            place = whole
    return module(f)


def _part_of_row(f: Function, t: Element, i: str, lanes: int, pointers: Sequence[str],
                 strides: tuple[int, int], summed: int) -> None:
    """Compute some adjacent sums, from the i-th of a row on."""
    vector = typed(t.llvm, lanes)
    total = f.variable(vector, f.splat(t.llvm, t.zero, lanes))
    *operands, to = (f.at(p, i, t.llvm) if stride else p
                     for p, stride in zip(pointers, (*strides, 1), strict=True))
    with ExitStack() as loops:
        places = _summed(f, loops, summed, 10, operands, (t, t))
        x, y = (f.load(vector, p, t.size) if stride else
                f.splat(t.llvm, f.load(t.llvm, p, t.size), lanes)
                for p, stride in zip(places, strides, strict=True))
        f.store(vector, f.multiply_add(x, y, f.load(vector, total), t.llvm, lanes), total)
    f.store(vector, f.load(vector, total), to, t.size)


def _dot_function(a: Element, b: Element, work: Element, strides: tuple[int, int]) -> Function:
    """to += the sum of x[i] y[i]; the vectorizer chooses the order of the sum at compile time."""
    f = inner("dot", _ROWS, NOINLINE)
    total = f.variable(work.llvm, work.zero)
    with f.loop(0, "%n", vectorize=True) as i:
        left, right = _factors(f, i, (a, b), strides, work)
        old = f.load(work.llvm, total)
        f.store(work.llvm, plus_product(f, work, old, left, right, flags=_FLAGS.get(work.kind, "")),
                total)
    value = plus(f, work, f.load(work.llvm, "%to", work.size), f.load(work.llvm, total))
    f.store(work.llvm, value, "%to", work.size)
    return f


@cache
def dot(a: Element, b: Element, c: Element, work: Element, strides: tuple[int, int],
        summed: int) -> str:
    """Units are (output, part): each computes one sum over `step` terms.

    Arguments: refs of a, b, c; terms, step, parts, strides of a and b along them; further summed
    axes (extent, a, b); outer axes (the parts of an output are adjacent in c)."""
    f, run = kernel(), _dot_function(a, b, work, strides)
    bases = [f.buffer(i) for i in (0, 2, 4)]
    terms, step, parts, sx, sy = (f.argument(i) for i in range(6, 11))
    total = f.alloca(work.llvm, 1, work.size)
    with f.loop("%lo", "%hi") as unit:
        rest, part = f.udiv(unit, parts), f.urem(unit, parts)
        x, y, to = outer_offsets(f, rest, 11 + 3 * summed, bases, (a, b, c))
        start = f.mul(part, step)
        count = f.smin(f.sub(terms, start), step)
        x, y = f.at(x, f.mul(start, sx), a.llvm), f.at(y, f.mul(start, sy), b.llvm)
        f.store(work.llvm, work.zero, total, work.size)
        with ExitStack() as loops:
            px, py = _summed(f, loops, summed, 11, [x, y], (a, b))
            f.call(run, total, px, py, sx, sy, count)
        value = convert(f, f.load(work.llvm, total, work.size), work, c)
        f.store(c.llvm, value, f.at(to, part, c.llvm), c.size)
    return module(run, f)


@cache
def combine(work: Element, c: Element) -> str:
    """c[unit] = the sum of `parts` numbers, in order. Arguments: refs of both, parts."""
    f = kernel()
    source, to, parts = f.buffer(0), f.buffer(2), f.argument(4)
    with f.loop("%lo", "%hi") as unit:
        start = f.at(source, f.mul(unit, parts), work.llvm)
        total = f.variable(work.llvm, work.zero)
        with f.loop(0, parts, vectorize=False) as i:
            value = f.load(work.llvm, f.at(start, i, work.llvm), work.size)
            f.store(work.llvm, plus(f, work, f.load(work.llvm, total), value), total)
        value = convert(f, f.load(work.llvm, total), work, c)
        f.store(c.llvm, value, f.at(to, unit, c.llvm), c.size)
    return module(f)


@cache
def sum_arrays(work: Element, c: Element) -> str:
    """c = the sum of `parts` consecutive arrays, in order.

    Units are elements. Arguments: refs of the arrays and of c, elements of each, parts."""
    row, final = inner("row", _CAST, NOINLINE), _cast_function("final", work, c)
    with row.loop(0, "%n", vectorize=True) as i:
        place = row.at("%to", i, work.llvm)
        old = row.load(work.llvm, place, work.size)
        value = row.load(work.llvm, row.at("%from", i, work.llvm), work.size)
        row.store(work.llvm, plus(row, work, old, value), place, work.size)
    f = kernel()
    source, to, size, parts = f.buffer(0), f.buffer(2), f.argument(4), f.argument(5)
    held = f.alloca(work.llvm, BLOCK, 64)
    with f.loop("%lo", "%hi", BLOCK) as first:
        n = f.smin(f.sub("%hi", first), BLOCK)
        start = f.at(source, first, work.llvm)
        f.copy(held, start, f.mul(n, work.size))
        with f.loop(1, parts) as part:
            f.call(row, held, f.at(start, f.mul(part, size), work.llvm), n)
        f.call(final, f.at(to, first, c.llvm), held, n)
    return module(row, final, f)


def _cast_function(name: str, source: Element, target: Element) -> Function:
    f = inner(name, _CAST, NOINLINE)
    with f.loop(0, "%n", vectorize=True) as i:
        value = f.load(source.llvm, f.at("%from", i, source.llvm), source.size)
        f.store(target.llvm, convert(f, value, source, target), f.at("%to", i, target.llvm),
                target.size)
    return f


@cache
def cast(source: Element, target: Element) -> str:
    """Convert contiguous elements. Arguments: refs of both."""
    f, row = kernel(), _cast_function("row", source, target)
    start, to = f.at(f.buffer(0), "%lo", source.llvm), f.at(f.buffer(2), "%lo", target.llvm)
    f.call(row, to, start, f.sub("%hi", "%lo"))
    return module(row, f)
