"""Order-preserving integer keys of numbers, and sorters of integers that hold them.

The bits of a float, read as an integer, have the same order as floats once the order of negative
numbers is reversed. The sorters are stable and compare only some bits of each element: a merge sort
for short rows, a radix sort by bytes (least first, bytes that are all equal skipped) for long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from toile.kernels.sort.shared import INFINITY
from toile.targets.llvm import text as ir

PLACE = 2**32 - 1  # the part of a packed element that is the index
_SHORT = 192  # elements up to which merging is faster than counting
LONG_ROW = 1 << 18  # elements between two checks of whether the run should stop
_SORT = "ptr %a, ptr %b, i64 %n, ptr %slot"  # the parameters of sorters
_RUN = 16  # elements that are sorted by their ranks before merging


def element_bits(wide: bool) -> int:
    """Bits of an element with key and index: half of them for each."""
    return 128 if wide else 64


@contextmanager
def while_(f: ir.Function, condition: Callable[[], str]) -> Iterator[None]:
    """while (condition()) { ... }"""
    n = f.count = f.count + 1
    f.do(f"br label %test{n}")
    f.label(f"test{n}")
    f.do(f"br i1 {condition()}, label %turn{n}, label %past{n}")
    f.label(f"turn{n}")
    yield
    f.do(f"br label %test{n}")
    f.label(f"past{n}")


# -------------------------------------------------------------------------------------------- keys


def key_of(f: ir.Function, dtype: Any, x: str, use: str, lanes: int = 1) -> str:
    """The unsigned key of a number given as its bits (or of a vector of them).

    `use`: "sort" (zeros equal, NaN last), "values" (the same, but -0 just below +0: see
    `sort_functions`), "top" (descending; the total order of bits), "max" and "min" (zeros equal,
    NaN the best)."""
    bits = 8 * dtype.itemsize
    type, mask = ir.typed(f"i{bits}", lanes), ir.typed("i1", lanes)
    every = lambda value: ir.constant(_signed(value, bits), lanes, f"i{bits}")
    sign = 1 << (bits - 1)
    if dtype.name not in INFINITY:
        if dtype.kind == "i":
            x = f.value(f"xor {type} {x}, {every(sign)}")
        return f.value(f"xor {type} {x}, {every(-1)}") if use == "top" else x
    given = x
    if use in ("sort", "max", "min"):  # -0 counts as 0
        zero = f.value(f"icmp eq {type} {x}, {every(sign)}")
        x = f.value(f"select {mask} {zero}, {type} {every(0)}, {type} {x}")
    # The bits of negative numbers are in reverse order: invert them all; else only the sign.
    turned = f.value(f"ashr {type} {x}, {every(bits - 1)}")
    turned = f.value(f"or {type} {turned}, {every(sign)}")
    key = f.value(f"xor {type} {x}, {turned}")
    if use == "top":
        return f.value(f"xor {type} {key}, {every(-1)}")
    size = f.value(f"and {type} {given}, {every(sign - 1)}")
    nan = f.value(f"icmp ugt {type} {size}, {every(INFINITY[dtype.name])}")
    best = every(0 if use == "min" else -1)
    return f.value(f"select {mask} {nan}, {type} {best}, {type} {key}")


def number_of(f: ir.Function, dtype: Any, key: str) -> str:
    """The bits of the number that has a "values" key."""
    bits = 8 * dtype.itemsize
    sign = _signed(1 << (bits - 1), bits)
    if dtype.name not in INFINITY:
        return f.value(f"xor i{bits} {key}, {sign}") if dtype.kind == "i" else key
    positive = f.value(f"ashr i{bits} {key}, {bits - 1}")  # all ones if the sign bit is set
    turned = f.value(f"xor i{bits} {positive}, -1")
    turned = f.value(f"or i{bits} {turned}, {sign}")
    return f.value(f"xor i{bits} {key}, {turned}")


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# ----------------------------------------------------------------------------------------- sorters


class _Sorter:
    """Writes the functions that sort elements by `bits` of them from bit `shift` on."""

    def __init__(self, width: int, shift: int, bits: int, zeros: bool, name: str):
        self.type, self.width, self.shift, self.bits = f"i{width}", width, shift, bits
        self.zeros, self.name = zeros, name
        self.align = min(width // 8, 8)
        moves = [self.move(p) for p in range(bits // 8)]
        run, pair, merge = self.ranks(), self.merge_equal(), self.merge()
        short = self.short(run, pair, merge)
        self.functions = [run, pair, merge, short, *moves, self.radix(short, moves)]

    def key(self, f: ir.Function, x: str) -> str:
        """What elements are compared by: with `zeros`, the keys of -0 and +0 are the same."""
        if self.shift:
            return f.value(f"lshr {self.type} {x}, {self.shift}")
        if self.zeros:
            low = f.compare("eq", x, (1 << (self.bits - 1)) - 1, self.type)
            more = f.value(f"zext i1 {low} to {self.type}")
            return f.value(f"add {self.type} {x}, {more}")
        return x

    def load(self, f: ir.Function, base: str, i: ir.Operand) -> str:
        return f.load(self.type, f.at(base, i, self.type), self.align)

    def store(self, f: ir.Function, x: str, base: str, i: ir.Operand) -> None:
        f.store(self.type, x, f.at(base, i, self.type), self.align)

    # ---- short rows
    def ranks(self) -> ir.Function:
        """Sort up to 16 elements in place: the index of each is the number of those before it."""
        f = ir.inner(f"{self.name}_run", "ptr %a, i64 %n")
        lane, n = f"i{self.bits}", _RUN
        type, mask = f"<{n} x {lane}>", f"<{n} x i1>"
        keys, places = f.alloca(lane, n, 64), f.alloca(lane, n, 64)
        held = f.alloca(self.type, n, 64)
        f.store(type, ir.constant(-1, n, lane), keys)  # missing elements come last
        with f.loop(0, "%n") as i:
            x = self.load(f, "%a", i)
            self.store(f, x, held, i)
            key = self.key(f, x)
            if self.width > self.bits:
                key = f.value(f"trunc {self.type} {key} to {lane}")
            f.store(lane, key, f.at(keys, i, lane))
        every = f.load(type, keys)
        rank = "zeroinitializer"
        for j in range(n):
            pick = ir.constant(j, n)
            one = f.value(f"shufflevector {type} {every}, {type} poison, <{n} x i32> {pick}")
            less = f.value(f"icmp ult {type} {one}, {every}")
            same = f.value(f"icmp ule {type} {one}, {every}")  # counts for the elements after it
            behind = ", ".join(f"i1 {'true' if i > j else 'false'}" for i in range(n))
            counts = f.value(f"select {mask} <{behind}>, {mask} {same}, {mask} {less}")
            rank = f.value(f"sub {type} {rank}, {f.value(f'sext {mask} {counts} to {type}')}")
        f.store(type, rank, places)
        with f.loop(0, "%n") as i:
            place = f.load(lane, f.at(places, i, lane))
            if self.bits < 64:
                place = f.value(f"zext {lane} {place} to i64")
            self.store(f, self.load(f, held, i), "%a", place)
        return f

    def merge_equal(self) -> ir.Function:
        """Merge a[0:w], a[w:2w] into b from both ends: w steps from either end stay in bounds."""
        f = ir.inner(f"{self.name}_pair", "ptr noalias %a, ptr noalias %b, i64 %w")
        end = f.sub(f.mul("%w", 2), 1)
        low = f.variable("i64", 0), f.variable("i64", "%w")
        high = f.variable("i64", f.sub("%w", 1)), f.variable("i64", end)
        with f.loop(0, "%w") as k:
            for (left, right), front in ((low, True), (high, False)):
                i, j = f.load("i64", left), f.load("i64", right)
                x, y = self.load(f, "%a", i), self.load(f, "%a", j)
                less = f.compare("ult", self.key(f, y), self.key(f, x), self.type)
                step = f.value(f"zext i1 {less} to i64")
                if front:
                    self.store(f, f.select(less, y, x, self.type), "%b", k)
                    f.store("i64", f.add(j, step), right)
                    f.store("i64", f.sub(f.add(i, 1), step), left)
                else:
                    self.store(f, f.select(less, x, y, self.type), "%b", f.sub(end, k))
                    f.store("i64", f.sub(i, step), left)
                    f.store("i64", f.add(f.sub(j, 1), step), right)
        return f

    def merge(self) -> ir.Function:
        """Merge adjacent a[lo:mid], a[mid:hi] into b[lo:hi], stably."""
        f = ir.inner(f"{self.name}_merge",
                     "ptr noalias %a, ptr noalias %b, i64 %lo, i64 %mid, i64 %hi")
        left, right = f.variable("i64", "%lo"), f.variable("i64", "%mid")
        end_left, end_right = f.sub("%mid", 1), f.sub("%hi", 1)
        with f.loop("%lo", "%hi") as k:
            i, j = f.load("i64", left), f.load("i64", right)
            x = self.load(f, "%a", f.smin(i, end_left))
            y = self.load(f, "%a", f.smin(j, end_right))
            less = f.compare("ult", self.key(f, y), self.key(f, x), self.type)
            done = f.compare("sge", i, "%mid")
            there = f.compare("slt", j, "%hi")
            take = f.value(f"or i1 {done}, {f.all(there, less)}")
            self.store(f, f.select(take, y, x, self.type), "%b", k)
            step = f.value(f"zext i1 {take} to i64")
            f.store("i64", f.add(j, step), right)
            f.store("i64", f.sub(f.add(i, 1), step), left)
        return f

    def short(self, run: ir.Function, pair: ir.Function, merge: ir.Function) -> ir.Function:
        """Sort runs by rank, then merge in doubling widths; %slot receives the result's address."""
        f = ir.inner(f"{self.name}_short", _SORT)
        with f.loop(0, "%n", _RUN) as i:
            count = f.smin(f.sub("%n", i), _RUN)
            f.call(run, f.at("%a", i, self.type), count)
        now, spare = f.variable("ptr", "%a"), f.variable("ptr", "%b")
        width = f.variable("i64", _RUN)
        with while_(f, lambda: f.compare("slt", f.load("i64", width), "%n")):
            w, a, b = f.load("i64", width), f.load("ptr", now), f.load("ptr", spare)
            with f.loop(0, "%n", f.mul(w, 2)) as lo:
                mid = f.smin(f.add(lo, w), "%n")
                hi = f.smin(f.add(mid, w), "%n")
                whole = f.compare("eq", f.sub(hi, lo), f.mul(w, 2))
                with f.when(whole):
                    f.call(pair, f.at(a, lo, self.type), f.at(b, lo, self.type), w)
                with f.unless(whole):
                    f.call(merge, a, b, lo, mid, hi)
            f.store("ptr", b, now)
            f.store("ptr", a, spare)
            f.store("i64", f.mul(w, 2), width)
        f.store("ptr", f.load("ptr", now), "%slot")
        return f

    # ---- long rows
    def digit(self, f: ir.Function, x: str, number: int) -> str:
        """Byte `number` of an element's key."""
        key = self.key(f, x)
        if number:
            key = f.value(f"lshr {self.type} {key}, {8 * number}")
        if self.width > 8:
            key = f.value(f"and {self.type} {key}, 255")
        if self.width == 64:
            return key
        return f.value(f"{'trunc' if self.width > 64 else 'zext'} {self.type} {key} to i64")

    def radix(self, short: ir.Function, moves: list[ir.Function]) -> ir.Function:
        """Count bytes, then move elements by each byte that differs; few are sorted by `short`.
        %slot receives the result's address."""
        f = ir.inner(self.name, _SORT)
        few = f.compare("sle", "%n", _SHORT)
        with f.when(few):
            f.call(short, "%a", "%b", "%n", "%slot")
        with f.unless(few):
            self._counted(f, moves)
        return f

    def _counted(self, f: ir.Function, moves: list[ir.Function]) -> None:
        passes = self.bits // 8
        counts = f.alloca("i64", 256 * passes, 64)
        f.do(f"call void @llvm.memset.p0.i64(ptr {counts}, i8 0, i64 {2048 * passes}, i1 false)")
        tables = [f.at(counts, 256 * p, "i64") for p in range(passes)]
        with f.loop(0, "%n") as i:
            x = self.load(f, "%a", i)
            for p, table in enumerate(tables):
                cell = f.at(table, self.digit(f, x, p), "i64")
                f.store("i64", f.add(f.load("i64", cell), 1), cell)
        now, spare = f.variable("ptr", "%a"), f.variable("ptr", "%b")
        total = f.alloca("i64")
        for p, (table, move) in enumerate(zip(tables, moves, strict=True)):
            a, b = f.load("ptr", now), f.load("ptr", spare)
            cell = f.at(table, self.digit(f, self.load(f, a, 0), p), "i64")
            with f.unless(f.compare("eq", f.load("i64", cell), "%n")):
                f.store("i64", 0, total)
                with f.loop(0, 256) as d:  # counts become start positions
                    cell = f.at(table, d, "i64")
                    count, before = f.load("i64", cell), f.load("i64", total)
                    f.store("i64", before, cell)
                    f.store("i64", f.add(before, count), total)
                code = f.value(f"call i64 @{move.name}(ptr {a}, ptr {b}, i64 %n, ptr {table})")
                # If the run should stop, the elements in `a` are not sorted, but complete.
                with f.when(f.compare("eq", code, 0)):
                    f.store("ptr", b, now)
                    f.store("ptr", a, spare)
        f.store("ptr", f.load("ptr", now), "%slot")

    def move(self, number: int) -> ir.Function:
        """Move elements to the positions given by a byte of their keys; returns 0 unless the run
        stops."""
        f = ir.inner(f"{self.name}_move{number}",
                     "ptr noalias %a, ptr noalias %b, i64 %n, ptr noalias %places", result="i64")
        moved = f.variable("i64", 0)
        with f.long_loop(0, "%n", LONG_ROW) as i:
            f.store("i64", f.add(i, 1), moved)
            x = self.load(f, "%a", i)
            cell = f.at("%places", self.digit(f, x, number), "i64")
            place = f.load("i64", cell)
            self.store(f, x, "%b", place)
            f.store("i64", f.add(place, 1), cell)
        f.result = "i64 " + f.sub("%n", f.load("i64", moved))
        return f


def sort_functions(
    width: int, shift: int, bits: int, zeros: bool = False, name: str = "sort"
) -> list[ir.Function]:
    """`void name(a, b, n, slot)`, which sorts n elements of `width` bits, with its helpers.

    The elements are in %a; %b is another buffer of that size; *slot becomes the one of the two that
    holds the result. `zeros`: the keys are those of floats, whose two zeros must compare equal."""
    return _Sorter(width, shift, bits, zeros, name).functions


def heap_function(type: str) -> ir.Function:
    """`void sift(heap, k, i, x)`: insert x at i of a heap of k with the greatest on top."""
    f = ir.inner("sift", f"ptr %h, i64 %k, i64 %i, {type} %x")
    place, child = f.variable("i64", "%i"), f.alloca("i64")
    last = f.sub("%k", 1)

    def below() -> str:
        left = f.add(f.mul(f.load("i64", place), 2), 1)
        right = f.smin(f.add(left, 1), last)
        inside = f.smin(left, last)
        a = f.load(type, f.at("%h", inside, type), 8)
        b = f.load(type, f.at("%h", right, type), 8)
        more = f.compare("ugt", b, a, type)
        f.store("i64", f.select(more, right, inside), child)
        larger = f.compare("ugt", f.select(more, b, a, type), "%x", type)
        return f.all(f.compare("slt", left, "%k"), larger)

    with while_(f, below):
        c = f.load("i64", child)
        f.store(type, f.load(type, f.at("%h", c, type), 8), f.at("%h", f.load("i64", place), type),
                8)  # fmt: skip
        f.store("i64", c, place)
    f.store(type, "%x", f.at("%h", f.load("i64", place), type), 8)
    return f
