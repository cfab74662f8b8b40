"""Sort, top k, argmax and argmin: rows in parallel, by integer keys.

A number becomes an unsigned integer of the same order (`cpu_keys` has the keys and the sorters);
the key and its original index form one wider integer, sorted stably by the key. Operands are then
read in the order of the indices. Several keys are sorted one after the other, the last first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from typing import Any

from toile.compiler.ir.extents import larger, smaller
from toile.compiler.ir.operands import Args, Operand
from toile.kernels.copy.cpu import Reader, decode, element_type
from toile.kernels.sort.cpu_keys import (
    LONG_ROW,
    PLACE,
    element_bits,
    heap_function,
    key_of,
    number_of,
    sort_functions,
)
from toile.kernels.sort.shared import Rows, keys_of, orders, rows_of
from toile.targets.llvm import text as ir
from toile.targets.llvm.launches import Launch, Planner

_SMALL = 1 << 12  # elements below which rows are not divided
_ROWS = 64  # rows between two checks of whether the run should stop
_LANES = 16  # of an arg-extremum's vectors
_HEAP = 24  # elements of the largest heap


def _lanes(rows: int, length: int, threads: int) -> int:
    """How many parts rows are divided into; each has its own scratch memory."""
    return larger(1, smaller(rows, 2 * threads if threads > 1 else 1, rows * length // _SMALL))


class _Frame:
    """A kernel over lanes, and the arguments that it has read."""

    def __init__(self, arrays: int, rank: int):
        self.f = f = ir.kernel()
        self.r = r = Reader(f)
        self.scratch = r.buffer()
        self.bases = [r.buffer() for _ in range(arrays)]
        self.n, self.lane_bytes, self.count, self.each = r.many(4)
        self.extents = r.many(rank)
        self.steps = [r.many(rank) for _ in range(arrays)]
        self.inner = r.many(arrays)

    def text(self, body: Any, functions: Sequence[ir.Function]) -> str:
        """The kernel with the loop of `body(memory, pointers)` over rows."""
        f = self.f
        with f.loop("%lo", "%hi") as lane:
            memory = f.step(self.scratch, lane, self.lane_bytes)
            first, last = f.part(lane, self.each, self.count)
            with f.long_loop(first, last, _ROWS) as row:
                offsets = decode(f, row, self.extents, *self.steps)
                body(memory, [f.offset(b, o) for b, o in zip(self.bases, offsets, strict=True)])
        return ir.module(*functions, f)


# -------------------------------------------------------------------------------------------- sort


def lower(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Sort, any number of operands and keys."""
    keys, n = keys_of(op, ins), ins[0].shape[op.dimension]
    if keys is None or n >= 2**32 or len(ins[0].shape) > 8:
        return False
    alone = len(ins) == 1 and len(keys) == 1
    arrays = [*ins, *outs] if alone else [*keys, *ins, *outs]
    rows = rows_of(op.dimension, *arrays)
    if alone:
        item = ins[0].dtype.itemsize
        text = _values_text(ins[0].dtype, len(rows.extents))
    else:
        wide = max(k.dtype.itemsize for k in keys) == 8
        item = element_bits(wide) // 8
        sizes = tuple(x.dtype.itemsize for x in ins)
        text = _sort_text(tuple(k.dtype for k in keys), sizes, wide, len(rows.extents))
    plan.stage(_launch(text, arrays, rows, n, 2 * n * item, plan, "sort"))
    return True


def _launch(
    text: str, arrays: Sequence[Operand], rows: Rows, n: int, nbytes: int, plan: Planner,
    note: str, *more: int,
) -> Launch:  # fmt: skip
    """A launch over rows of `n` elements; each lane needs `nbytes` of scratch memory."""
    lanes = _lanes(rows.number, n, plan.threads)
    lane_bytes = -(-nbytes // 64) * 64
    args: Args = (
        plan.scratch(lanes * lane_bytes), *(a.ref for a in arrays), n, lane_bytes,
        rows.number, -(-rows.number // lanes), *rows.extents, *chain(*rows.steps), *rows.inner,
        *more,
    )  # fmt: skip
    return Launch(text, args, lanes, 1, note)


@lru_cache(maxsize=128)
def _values_text(dtype: Any, rank: int) -> str:
    """Rows of one operand: only the keys are sorted."""
    frame = _Frame(2, rank)
    f, bits = frame.f, 8 * dtype.itemsize
    functions = sort_functions(bits, 0, bits, zeros=dtype.kind not in "biu")
    slot = f.alloca("ptr")

    def body(memory: str, pointers: list[str]) -> None:
        source, to = pointers
        other = f.step(memory, frame.n, dtype.itemsize)
        with f.loop(0, frame.n) as i:
            x = f.load(f"i{bits}", f.step(source, i, frame.inner[0]), dtype.itemsize)
            f.store(f"i{bits}", key_of(f, dtype, x, "values"), f.at(memory, i, f"i{bits}"))
        f.call(functions[-1], memory, other, frame.n, slot)
        found = f.load("ptr", slot)
        with f.loop(0, frame.n) as i:
            x = number_of(f, dtype, f.load(f"i{bits}", f.at(found, i, f"i{bits}")))
            f.store(f"i{bits}", x, f.step(to, i, frame.inner[1]), dtype.itemsize)

    return frame.text(body, functions)


@lru_cache(maxsize=256)
def _sort_text(keys: tuple[Any, ...], sizes: tuple[int, ...], wide: bool, rank: int) -> str:
    """Rows of several operands, or with several keys: sort indices, then read the operands."""
    frame = _Frame(len(keys) + 2 * len(sizes), rank)
    f, bits = frame.f, element_bits(wide)
    type, slot = f"i{bits}", f.alloca("ptr")
    widths = dict.fromkeys(8 * key.itemsize for key in reversed(keys))
    functions = {w: sort_functions(bits, bits // 2, w, name=f"sort{w}") for w in widths}

    def body(memory: str, pointers: list[str]) -> None:
        other = f.step(memory, frame.n, bits // 8)
        found = ""
        for k in range(len(keys) - 1, -1, -1):
            with f.loop(0, frame.n) as i:  # in place: reads and writes of index i coincide
                at = i if not found else _place(f, type, f.at(found, i, type))
                key = _loaded_key(f, keys[k], f.step(pointers[k], at, frame.inner[k]))
                f.store(type, _packed(f, bits, keys[k], key, at), f.at(found or memory, i, type), 8)
            spare = other
            if found:  # the memory that is free at this point
                spare = f.select(f.compare("eq", found, memory, "ptr"), other, memory, "ptr")
            f.call(functions[8 * keys[k].itemsize][-1], found or memory, spare, frame.n, slot)
            found = f.load("ptr", slot)
        for j, size in enumerate(sizes):
            a, b = len(keys) + j, len(keys) + len(sizes) + j
            move, align = element_type(size), min(size, 8)
            with f.loop(0, frame.n) as i:
                at = _place(f, type, f.at(found, i, type))
                x = f.load(move, f.step(pointers[a], at, frame.inner[a]), align)
                f.store(move, x, f.step(pointers[b], i, frame.inner[b]), align)

    return frame.text(body, [*chain(*functions.values())])


def _loaded_key(f: ir.Function, dtype: Any, pointer: str, use: str = "sort") -> str:
    bits = 8 * dtype.itemsize
    return key_of(f, dtype, f.load(f"i{bits}", pointer, dtype.itemsize), use)


def _packed(f: ir.Function, bits: int, dtype: Any, key: str, place: str) -> str:
    """Key and index in one integer, the key in its upper half."""
    narrow, half = 8 * dtype.itemsize, bits // 2
    high = f.value(f"shl i{bits} {f.value(f'zext i{narrow} {key} to i{bits}')}, {half}")
    low = place if bits == 64 else f.value(f"zext i64 {place} to i{bits}")
    return f.value(f"or i{bits} {high}, {low}")


def _place(f: ir.Function, type: str, pointer: str) -> str:
    """The index in a packed integer."""
    x = f.load(type, pointer, 8)
    if type != "i64":
        x = f.value(f"trunc {type} {x} to i64")
    return f.value(f"and i64 {x}, {PLACE}")


# ------------------------------------------------------------------------------------------- top k


def lower_top_k(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """TopK: a heap of the k best or, if k is not small, repeated sorts of candidates."""
    x = ins[0]
    n = x.shape[op.axis]
    if not orders(x.dtype) or n >= 2**31 or op.k == 0 or len(x.shape) > 8:
        return False
    wide = x.dtype.itemsize == 8
    rows = rows_of(op.axis, x, *outs)
    few = op.k <= _HEAP
    room = op.k if few else smaller(n + 1, 4 * op.k)
    text = _top_text(x.dtype, wide, len(rows.extents), few)
    nbytes = (1 if few else 2) * room * element_bits(wide) // 8
    plan.stage(_launch(text, [x, *outs], rows, n, nbytes, plan, "top_k", op.k, room))
    return True


@lru_cache(maxsize=128)
def _top_text(dtype: Any, wide: bool, rank: int, few: bool) -> str:
    frame = _Frame(3, rank)
    f, bits, (k, room) = frame.f, element_bits(wide), frame.r.many(2)
    type = f"i{bits}"
    functions = [heap_function(type)] if few else sort_functions(
        bits, bits // 2, 8 * dtype.itemsize)

    def body(memory: str, pointers: list[str]) -> None:
        source = pointers[0]

        def element(i: str) -> str:
            pointer = f.step(source, i, frame.inner[0])
            return _packed(f, bits, dtype, _loaded_key(f, dtype, pointer, "top"), i)

        if few:
            _heap_of_best(f, functions[0], type, memory, k, frame.n, element)
            found = memory
        else:
            best = _Candidates(f, functions[-1], type, k, room)
            with f.loop(0, k) as i:
                f.store(type, element(i), f.at(memory, i, type), 8)
            best.start(memory, f.step(memory, room, bits // 8))
            with f.long_loop(k, frame.n, LONG_ROW) as i:
                best.add(element(i))
            best.sort()
            found = f.load("ptr", best.here)
        move = f"i{8 * dtype.itemsize}"
        with f.loop(0, k) as j:
            at = _place(f, type, f.at(found, j, type))
            x = f.load(move, f.step(source, at, frame.inner[0]), dtype.itemsize)
            f.store(move, x, f.step(pointers[1], j, frame.inner[1]), dtype.itemsize)
            narrow = f.value(f"trunc i64 {at} to i32")
            f.store("i32", narrow, f.step(pointers[2], j, frame.inner[2]), 4)

    return frame.text(body, functions)


def _heap_of_best(
    f: ir.Function, sift: ir.Function, type: str, heap: str, k: str, n: str, element: Any
) -> None:
    """The k least elements in order: a heap keeps the greatest on top, which smaller ones
    replace."""
    with f.loop(0, k) as i:
        f.store(type, element(i), f.at(heap, i, type), 8)
    half = f.udiv(k, 2)
    with f.loop(0, half) as back:
        i = f.sub(f.sub(half, 1), back)
        f.call(sift, heap, k, i, f.load(type, f.at(heap, i, type), 8))
    with f.long_loop(k, n, LONG_ROW) as i:
        x = element(i)
        with f.when(f.compare("ult", x, f.load(type, heap, 8), type)):
            f.call(sift, heap, k, 0, x)
    with f.loop(1, k) as taken:
        last = f.sub(k, taken)
        place = f.at(heap, last, type)
        top, x = f.load(type, heap, 8), f.load(type, place, 8)
        f.call(sift, heap, last, 0, x)
        f.store(type, top, place, 8)


class _Candidates:
    """Finds the k least elements with a buffer of candidates. An element is appended, without a
    branch, if it is less than the k-th of the last sort. When the buffer holds `room` elements, it
    is sorted, and the k least are kept."""

    def __init__(self, f: ir.Function, sorter: ir.Function, type: str, k: str, room: str):
        self.f, self.sorter, self.type, self.k, self.room = f, sorter, type, k, room
        self.here, self.other = f.alloca("ptr"), f.alloca("ptr")
        self.count, self.limit = f.alloca("i64"), f.alloca(type)

    def start(self, here: str, other: str) -> None:
        """Begin with k elements, which are in the first of two buffers."""
        self.f.store("ptr", here, self.here)
        self.f.store("ptr", other, self.other)
        self.f.store("i64", self.k, self.count)
        self.f.store(self.type, -1, self.limit)  # unsigned: above all elements

    def add(self, x: str) -> None:
        """Add an element if it may be one of the best."""
        f, count = self.f, self.f.load("i64", self.count)
        f.store(self.type, x, f.at(f.load("ptr", self.here), count, self.type), 8)
        less = f.compare("ult", x, f.load(self.type, self.limit), self.type)
        count = f.add(count, f.value(f"zext i1 {less} to i64"))
        f.store("i64", count, self.count)
        with f.when(f.compare("eq", count, self.room)):
            self.sort()
            f.store("i64", self.k, self.count)
            last = f.at(f.load("ptr", self.here), f.sub(self.k, 1), self.type)
            f.store(self.type, f.load(self.type, last, 8), self.limit)

    def sort(self) -> None:
        """Sort the elements, from one buffer to the other or in place."""
        f = self.f
        one, two = f.load("ptr", self.here), f.load("ptr", self.other)
        f.call(self.sorter, one, two, f.load("i64", self.count), self.here)
        same = f.compare("eq", f.load("ptr", self.here), one, "ptr")
        f.store("ptr", f.select(same, two, one, "ptr"), self.other)


# ------------------------------------------------------------------------------------ arg-extrema


def lower_extremum(op: Any, ins: list[Operand], outs: list[Operand], plan: Planner) -> bool:
    """Argmax and Argmin."""
    dtype, to = ins[0].dtype, outs[0].dtype
    n = ins[0].shape[op.axis]
    if not orders(dtype) or to.kind not in "iu" or n >= 2**31:
        return False
    x = plan.contiguous(ins[0])
    inner = prod(x.shape[op.axis + 1 :])
    outer = prod(x.shape[: op.axis])
    largest = op.extremum == "max"
    args = (outs[0].ref, x.ref, n, inner)
    blocks = 1 if inner == 1 else -(-inner // _LANES)
    text = _arg_text(dtype, to, largest, inner > 1)
    cost = n * (1 if inner == 1 else _LANES)
    plan.stage(Launch(text, args, outer * blocks, max(1, _SMALL * 4 // cost), op.name))
    return True


class _Best:
    """Vectors (or single numbers) of the best values so far and their indices.

    float32 and float64 are compared directly, others by their keys."""

    def __init__(self, f: ir.Function, dtype: Any, largest: bool, lanes: int):
        self.f, self.dtype, self.lanes = f, dtype, lanes
        self.use = "max" if largest else "min"
        self.float = {"float32": "float", "float64": "double"}.get(dtype.name)
        self.relation = ("ogt" if largest else "olt") if self.float else (
            "ugt" if largest else "ult")
        number = self.float or f"i{8 * dtype.itemsize}"
        self.type, self.place, self.mask = (ir.typed(t, lanes) for t in (number, "i32", "i1"))
        self.key, self.at = f.alloca(self.type), f.alloca(self.place)

    def load(self, pointer: str) -> str:
        """Load what the numbers at an address are compared by."""
        x = self.f.load(self.type, pointer, self.dtype.itemsize)
        return x if self.float else key_of(self.f, self.dtype, x, self.use, self.lanes)

    def places(self, i: str) -> str:
        """An index in every lane."""
        return self.f.splat("i32", self.f.value(f"trunc i64 {i} to i32"), self.lanes)

    def start(self, key: str, at: str) -> None:
        self.f.store(self.type, key, self.key)
        self.f.store(self.place, at, self.at)

    def better(self, key: str, old: str) -> str:
        """Where a number is strictly better than another; NaN is better than all but NaN."""
        f = self.f
        if not self.float:
            return f.value(f"icmp {self.relation} {self.type} {key}, {old}")
        above = f.value(f"fcmp {self.relation.replace('o', 'u')} {self.type} {key}, {old}")
        known = f.value(f"fcmp ord {self.type} {old}, {old}")
        return f.value(f"and {self.mask} {above}, {known}")

    def compare(self, key: str, at: str) -> None:
        """Keep the strictly better value."""
        f = self.f
        old, where = f.load(self.type, self.key), f.load(self.place, self.at)
        better = self.better(key, old)
        self.choose(better, key, old, self.type, self.key)
        self.choose(better, at, where, self.place, self.at)

    def compare_lane(self, key: str, at: str) -> None:
        """Keep the better value, or the first if they are equal."""
        f = self.f
        old, where = f.load(self.type, self.key), f.load("i32", self.at)
        worse = f.value(f"xor i1 {self.better(old, key)}, true")
        earlier = f.all(worse, f.compare("ult", at, where, "i32"))
        better = f.value(f"or i1 {self.better(key, old)}, {earlier}")
        self.choose(better, key, old, self.type, self.key)
        self.choose(better, at, where, "i32", self.at)

    def choose(self, better: str, new: str, old: str, type: str, slot: str) -> None:
        """Replace the old value where the new one is better."""
        f = self.f
        f.store(type, f.value(f"select {self.mask} {better}, {type} {new}, {type} {old}"), slot)


@lru_cache(maxsize=64)
def _arg_text(dtype: Any, to: Any, largest: bool, columns: bool) -> str:
    f = ir.kernel()
    r = Reader(f)
    out, x = r.buffer(), r.buffer()
    n, inner = r.many(2)
    size = dtype.itemsize
    single, many = _Best(f, dtype, largest, 1), _Best(f, dtype, largest, _LANES)

    def put(at: str, index: str) -> None:
        wide = f.value(f"zext i32 {at} to i64")
        bits = 8 * to.itemsize
        wide = wide if bits == 64 else f.value(f"trunc i64 {wide} to i{bits}")
        f.store(f"i{bits}", wide, f.step(out, index, to.itemsize), to.itemsize)

    def along(best: _Best, start: str, step: str, first: str | int = 1) -> None:
        with f.loop(first, n) as i:
            best.compare(best.load(f.step(start, i, step)), best.places(i))

    def row(unit: str) -> None:
        start = f.step(x, f.mul(unit, n), size)
        single.start(single.load(start), "0")
        turns = f.udiv(n, _LANES)
        with f.when(f.compare("ne", turns, 0)):
            steps = ", ".join(f"i32 {k}" for k in range(_LANES))
            many.start(many.load(start), f"<{steps}>")
            with f.loop(1, turns) as t:
                i = f.mul(t, _LANES)
                at = f.value(f"add {many.place} {many.places(i)}, <{steps}>")
                many.compare(many.load(f.step(start, i, size)), at)
            _compare_lanes(f, single, many)
        along(single, start, str(size), f.mul(turns, _LANES))
        put(f.load("i32", single.at), unit)

    def block(unit: str) -> None:
        blocks = f.udiv(f.add(inner, _LANES - 1), _LANES)
        outer, column = f.divided(unit, blocks)
        column = f.mul(column, _LANES)
        start = f.step(x, f.add(f.mul(f.mul(outer, n), inner), column), size)
        step, index = f.mul(inner, size), f.add(f.mul(outer, inner), column)
        width = f.smin(f.sub(inner, column), _LANES)
        full = f.compare("eq", width, _LANES)
        with f.when(full):
            many.start(many.load(start), "zeroinitializer")
            along(many, start, step)
            with f.loop(0, _LANES) as lane:
                put(f.load("i32", f.at(many.at, lane, "i32")), f.add(index, lane))
        with f.unless(full), f.loop(0, width) as lane:
            here = f.step(start, lane, size)
            single.start(single.load(here), "0")
            along(single, here, step)
            put(f.load("i32", single.at), f.add(index, lane))

    with f.loop("%lo", "%hi") as unit:
        (block if columns else row)(unit)
    return ir.module(f)


def _compare_lanes(f: ir.Function, single: _Best, many: _Best) -> None:
    """Combine the best numbers of the lanes."""
    keys, places = f.load(many.type, many.key), f.load(many.place, many.at)
    for lane in range(many.lanes):
        key = f.value(f"extractelement {many.type} {keys}, i32 {lane}")
        single.compare_lane(key, f.value(f"extractelement {many.place} {places}, i32 {lane}"))
