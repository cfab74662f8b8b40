"""Own matrix-product kernels: C = A B by register tiles, packed or in place.

A tile of `rows` x `vectors` accumulators stays in registers while it runs over the summed axis.
A is read in place when that axis has unit stride ("rows"), else packed; B is read in place when
columns have unit stride, else packed, a panel at a time, on the stack. Packing also converts the
operands to the type the sums are formed in. All extents and strides are arguments.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any, NamedTuple

from toile.backends.cpu import native
from toile.backends.cpu.ir import Function, Operand, kernel, module, typed
from toile.backends.cpu.packing import DEPTH, PLAIN, SPACING, Tile, group_function, pack_function
from toile.backends.cpu.product_types import Element, convert, plus, plus_product

STACK_A, STACK_B = 256 << 10, 128 << 10  # bytes of packed operands on the stack

# Where the arguments of a product kernel are.
A, B, C = 0, 2, 4
M, N, K, A_ROW, A_SUM, B_SUM, B_COLUMN, C_ROW, C_COLUMN = range(6, 15)
ROW_STEP, COLUMN_STEP, ROW_BLOCKS, COLUMN_BLOCKS, B_MODE, ADDS, OUTER = range(15, 22)
IN_PLACE, PACK, PACKED = range(3)  # how B is given (B_MODE)


class Kernel(NamedTuple):
    """What a product kernel's text depends on."""

    tile: Tile
    packs_a: bool
    a: Element
    b: Element
    c: Element
    work: Element

    @property
    def text(self) -> str:
        return _texts(self)


def lane_operands() -> bool:
    """Whether a multiplication may take one lane of a register (NEON), not only a whole one."""
    return platform.machine().lower() in ("arm64", "aarch64")


def choose_tile(work: Element, rows: int, packs_a: bool, vector_bytes: int | None = None) -> Tile:
    """The tile for a product with `rows` rows on this machine."""
    width = vector_bytes or native.vector_bytes()
    lanes = width // work.size
    if rows == 1:
        return Tile(1, 8, lanes)
    if rows <= 4 and width <= 32:
        return Tile(4, 4 if width == 16 else 2, lanes)
    if width == 64:  # twelve pointers to rows would not fit in the integer registers
        return Tile(12, 2, lanes) if packs_a and rows > 6 else Tile(8, 3, lanes)
    if width == 32:
        return Tile(6, 2, lanes)
    if packs_a:
        return Tile(8, 3, lanes)
    return Tile(8, 2, lanes) if rows <= 8 else Tile(4, 4, lanes)


class _Writer:
    """Writes the functions of one product kernel."""

    def __init__(self, spec: Kernel):
        self.spec, self.tile, self.work = spec, spec.tile, spec.work
        self.vector = typed(spec.work.llvm, spec.tile.lanes)
        self.by_lane = lane_operands()

    # ---- arithmetic on vectors
    def splat(self, f: Function, vector: str, lane: int) -> str:
        n = self.tile.lanes
        picks = ", ".join([f"i32 {lane}"] * n)
        return f.value(
            f"shufflevector {self.vector} {vector}, {self.vector} poison, <{n} x i32> <{picks}>"
        )

    def broadcast(self, f: Function, pointer: str) -> str:
        value = f.load(self.work.llvm, pointer, self.work.size)
        first = f.value(f"insertelement {self.vector} poison, {self.work.llvm} {value}, i32 0")
        return self.splat(f, first, 0)

    def accumulate(self, f: Function, a: str, b: str, slot: str) -> None:
        """slot += a * b; for truth values, slot |= a & b."""
        old = f.load(self.vector, slot)
        f.store(self.vector, plus_product(f, self.work, old, a, b, self.tile.lanes), slot)

    # ---- one tile
    def tile_function(self, rows: int, vectors: int) -> Function:
        """c[rows, vectors] (+)= a b over `count` terms, for `height` rows and `width` columns."""
        f = Function(
            f"tile{rows}x{vectors}",
            ["i64 %count", "ptr noalias %a", "i64 %sa", "ptr noalias %b", "i64 %sb",
             "ptr noalias %c", "i64 %row", "i64 %column", "i64 %height", "i64 %width", "i1 %adds"],
            internal=True, attributes=PLAIN,
        )
        acc = [[f.variable(self.vector, "zeroinitializer") for _ in range(vectors)]
               for _ in range(rows)]
        if self.spec.packs_a:
            self._sum_packed(f, acc)
        else:
            self._sum_rows(f, acc)
        self._store_tile(f, acc)
        return f

    def _terms(self, f: Function, index: Operand, acc: list[list[str]],
               row: Callable[[int], str]) -> None:
        """One term of the sum: `row(i)` is the vector of a's element in row i."""
        t, lanes = self.work.llvm, self.tile.lanes
        start = f.at("%b", f.mul(index, "%sb"), t)
        columns = [f.load(self.vector, f.at(start, j * lanes, t), self.work.size)
                   for j in range(len(acc[0]))]
        for i, slots in enumerate(acc):
            a = row(i)
            for b, slot in zip(columns, slots, strict=True):
                self.accumulate(f, a, b, slot)

    def _sum_rows(self, f: Function, acc: list[list[str]]) -> None:
        """Rows of a in place, unit stride along the sum."""
        t, lanes = self.work.llvm, self.tile.lanes
        last = f.sub("%height", 1)
        starts = [f.at("%a", f.mul(f.smin(i, last), "%sa"), t) for i in range(len(acc))]
        step = lanes if self.by_lane else 4
        whole = f.value(f"and i64 %count, {-step}")
        with f.loop(0, whole, step, vectorize=False) as k:
            held = [f.load(self.vector, f.at(s, k, t), self.work.size) for s in starts
                    ] if self.by_lane else []
            for kk in range(step):
                index = f.add(k, kk)

                def row(i: int, kk: int = kk, index: str = index) -> str:
                    if self.by_lane:
                        return self.splat(f, held[i], kk)
                    return self.broadcast(f, f.at(starts[i], index, t))

                self._terms(f, index, acc, row)
        with f.loop(whole, "%count", vectorize=False) as k:
            self._terms(f, k, acc, lambda i: self.broadcast(f, f.at(starts[i], k, t)))

    def _sum_packed(self, f: Function, acc: list[list[str]]) -> None:
        """a packed as [count][tile.rows]."""
        t, lanes, rows = self.work.llvm, self.tile.lanes, len(acc)

        def term(k: str) -> None:
            start = f.at("%a", f.mul(k, self.tile.rows), t)
            if self.by_lane and rows % lanes == 0:
                held = [f.load(self.vector, f.at(start, i, t), self.work.size)
                        for i in range(0, rows, lanes)]
                self._terms(f, k, acc, lambda i: self.splat(f, held[i // lanes], i % lanes))
            else:
                self._terms(f, k, acc, lambda i: self.broadcast(f, f.at(start, i, t)))

        unroll = 4
        whole = f.value(f"and i64 %count, {-unroll}")
        with f.loop(0, whole, unroll, vectorize=False) as k:
            for kk in range(unroll):
                term(f.add(k, kk))
        with f.loop(whole, "%count", vectorize=False) as k:
            term(k)

    def _store_tile(self, f: Function, acc: list[list[str]]) -> None:
        c, work, lanes = self.spec.c, self.work, self.tile.lanes
        rows, vectors = len(acc), len(acc[0])
        whole = f.compare("eq", "%height", rows)
        for a, b in (("%width", vectors * lanes), ("%column", 1)):
            whole = f.value(f"and i1 {whole}, {f.compare('eq', a, b)}")
        out = typed(c.llvm, lanes)

        def store_all(adds: bool) -> None:
            for i, slots in enumerate(acc):
                row = f.at("%c", f.mul("%row", i), c.llvm)
                for j, slot in enumerate(slots):
                    place = f.at(row, j * lanes, c.llvm)
                    value = convert(f, f.load(self.vector, slot), work, c, lanes)
                    if adds:
                        value = plus(f, c, f.load(out, place, c.size), value, lanes)
                    f.store(out, value, place, c.size)

        adds = c == work or c.kind in "iu"  # partial sums of integers may be added converted
        with f.when(whole):
            if adds:
                with f.when("%adds"):
                    store_all(True)
            with f.unless("%adds"):
                store_all(False)
        with f.unless(whole):
            self._store_part(f, acc, adds)

    def _store_part(self, f: Function, acc: list[list[str]], adds: bool) -> None:
        """A tile at an edge, or with columns apart: through memory, by vectors if possible."""
        c, work, lanes = self.spec.c, self.work, self.tile.lanes
        rows, vectors = len(acc), len(acc[0])
        spill = f.alloca(work.llvm, rows * vectors * lanes, 64)
        for at, slot in enumerate(slot for slots in acc for slot in slots):
            place = f.at(spill, at * lanes, work.llvm)
            f.store(self.vector, f.load(self.vector, slot), place, work.size)
        flat = f.compare("eq", "%column", 1)
        whole = f.value(f"and i64 {f.select(flat, '%width', 0)}, {-lanes}")

        def move(row: str, held: str, j: str, n: int) -> None:
            type, place = typed(c.llvm, n), f.at(row, f.mul(j, "%column"), c.llvm)
            value = f.load(typed(work.llvm, n), f.at(held, j, work.llvm), work.size)
            value = convert(f, value, work, c, n)
            if adds:
                total = plus(f, c, f.load(type, place, c.size), value, n)
                value = f.select("%adds", total, value, type)
            f.store(type, value, place, c.size)

        with f.loop(0, "%height", vectorize=False) as i:
            row = f.at("%c", f.mul("%row", i), c.llvm)
            held = f.at(spill, f.mul(i, vectors * lanes), work.llvm)
            with f.loop(0, whole, lanes, vectorize=False) as j:
                move(row, held, j, lanes)
            with f.loop(whole, "%width", vectorize=False) as j:
                move(row, held, j, 1)

    # ---- the kernel
    def kernel_function(self) -> Function:
        f, tile, work = kernel(), self.tile, self.work
        f.head = f.head.replace("nounwind", PLAIN)
        size = {name: f.argument(i) for name, i in _LAYOUT.items()}
        bases = [f.buffer(i) for i in (A, B, C)]
        types = (self.spec.a, self.spec.b, self.spec.c)
        block = _block_rows(self.spec)
        held_a = f.alloca(work.llvm, block * SPACING, 64) if self.spec.packs_a else ""
        group = _group_columns(self.spec)
        held_b = f.alloca(work.llvm, group * SPACING, 64)
        adds_first = f.compare("ne", size["adds"], 0)
        with f.loop("%lo", "%hi") as unit:
            rest, column_block = _divide(f, unit, size["column_blocks"])
            rest, row_block = _divide(f, rest, size["row_blocks"])
            a, b, c = outer_offsets(f, rest, OUTER, bases, types)
            m0, n0 = f.mul(row_block, size["row_step"]), f.mul(column_block, size["column_step"])
            m1 = f.smin(f.add(m0, size["row_step"]), size["m"])
            n1 = f.smin(f.add(n0, size["column_step"]), size["n"])
            rows = block if self.spec.packs_a else f.sub(m1, m0)
            with f.loop(0, size["k"], DEPTH) as k0:
                count = f.smin(DEPTH, f.sub(size["k"], k0))
                adds = f.value(f"or i1 {adds_first}, {f.compare('ne', k0, 0)}")
                with f.loop(m0, m1, rows) as m:
                    end = f.smin(f.add(m, rows), m1)
                    a_block = f.at(a, f.add(f.mul(m, size["a_row"]), f.mul(k0, size["a_sum"])),
                                   self.spec.a.llvm)
                    if self.spec.packs_a:
                        self._pack_a(f, held_a, a_block, size, count, f.sub(end, m))
                    with f.loop(n0, n1, group) as first:
                        last = f.smin(f.add(first, group), n1)
                        b_block = f.at(b, f.mul(k0, size["b_sum"]), self.spec.b.llvm)
                        self._pack_b(f, b_block, held_b, size, first, last, count)
                        with f.loop(first, last, tile.columns) as n:
                            width = f.smin(f.sub(last, n), tile.columns)
                            panel, step = self._panel(f, b_block, held_b, size, first, n, count,
                                                      width)
                            self._tiles(f, size, a_block, held_a, panel, step, c, m, end, n,
                                        count, width, adds)
        return f

    def _pack_a(self, f: Function, held: str, a: str, size: dict[str, str], count: str,
                rows: str) -> None:
        """Panels [count][tile.rows] of a block of a."""
        f.do(
            f"call void @pack_a_group(ptr {held}, ptr {a}, i64 {size['a_sum']}, "
            f"i64 {size['a_row']}, i64 {count}, i64 {rows})"
        )

    def _pack_b(self, f: Function, b: str, held: str, size: dict[str, str], first: str,
                last: str, count: str) -> None:
        """Panels [count][tile.columns] of columns [first, last) of b, where they are wanted."""
        with f.when(f.compare("eq", size["b_mode"], PACK)):
            start = f.at(b, f.mul(first, size["b_column"]), self.spec.b.llvm)
            f.do(
                f"call void @pack_b_group(ptr {held}, ptr {start}, i64 {size['b_sum']}, "
                f"i64 {size['b_column']}, i64 {count}, i64 {f.sub(last, first)})"
            )

    def _panel(self, f: Function, b: str, held: str, size: dict[str, str], first: str, n: str,
               count: str, width: str) -> tuple[str, str]:
        """Where a panel of b is, and its stride along the sum."""
        tile = self.tile
        place = f.at(b, f.mul(n, size["b_column"]), self.spec.b.llvm)
        mine = f.at(held, f.mul(f.sub(n, first), SPACING), self.work.llvm)
        packed = f.compare("eq", size["b_mode"], PACK)
        # A vector that is not whole would read behind the end of b.
        broken = f.compare("ne", f.value(f"and i64 {width}, {tile.lanes - 1}"), 0)
        loose = f.compare("eq", size["b_mode"], IN_PLACE)
        tail = f.value(f"and i1 {broken}, {loose}")
        with f.when(tail):
            f.do(
                f"call void @pack_b(ptr {mine}, ptr {place}, i64 {size['b_sum']}, "
                f"i64 {size['b_column']}, i64 {count}, i64 {width})"
            )
        packed = f.value(f"or i1 {packed}, {tail}")
        panel = f.select(packed, mine, place, "ptr")
        return panel, f.select(packed, tile.columns, size["b_sum"])

    def _tiles(self, f: Function, size: dict[str, str], a: str, held_a: str, panel: str,
               step: str, c: str, m: str, end: str, n: str, count: str, width: str,
               adds: str) -> None:
        """All the tiles of rows [m, end) on one panel."""
        tile, work, out = self.tile, self.work, self.spec.c.llvm
        vectors = f.udiv(f.add(width, tile.lanes - 1), tile.lanes)
        column = f.mul(n, size["c_column"])
        for j in range(tile.vectors, 0, -1):
            with f.when(f.compare("eq", vectors, j)), f.loop(m, end, tile.rows) as i:
                height = f.smin(f.sub(end, i), tile.rows)
                first = f.sub(i, m)
                if self.spec.packs_a:
                    start = f.at(held_a, f.mul(first, SPACING), work.llvm)
                else:
                    start = f.at(a, f.mul(first, size["a_row"]), work.llvm)
                place = f.at(c, f.add(f.mul(i, size["c_row"]), column), out)
                call = (
                    f"x{j}(i64 {count}, ptr {start}, i64 {size['a_row']}, ptr {panel}, i64 {step},"
                    f" ptr {place}, i64 {size['c_row']}, i64 {size['c_column']}, i64 {height}, "
                    f"i64 {width}, i1 {adds})"
                )
                half = tile.rows // 2
                if not half:
                    f.do(f"call void @tile{tile.rows}{call}")
                    continue
                tall = f.compare("sgt", height, half)
                with f.when(tall):
                    f.do(f"call void @tile{tile.rows}{call}")
                with f.unless(tall):
                    f.do(f"call void @tile{half}{call}")


_LAYOUT = {
    "m": M, "n": N, "k": K, "a_row": A_ROW, "a_sum": A_SUM, "b_sum": B_SUM, "b_column": B_COLUMN,
    "c_row": C_ROW, "c_column": C_COLUMN, "row_step": ROW_STEP, "column_step": COLUMN_STEP,
    "row_blocks": ROW_BLOCKS, "column_blocks": COLUMN_BLOCKS, "b_mode": B_MODE, "adds": ADDS,
}


def _block_rows(spec: Kernel) -> int:
    """Rows of a that are packed at a time: a multiple of the tile's."""
    return max(1, STACK_A // (SPACING * spec.work.size * spec.tile.rows)) * spec.tile.rows


def _group_columns(spec: Kernel) -> int:
    """Columns of b that are packed at a time: rows of b are then read in long runs."""
    return max(1, STACK_B // (SPACING * spec.work.size * spec.tile.columns)) * spec.tile.columns


def _divide(f: Function, index: str, extent: str) -> tuple[str, str]:
    """Quotient and remainder; the quotient by a single block needs no division."""
    one = f.compare("eq", extent, 1)
    divisor = f.select(one, 1, extent)
    return f.udiv(index, divisor), f.urem(index, divisor)


def outer_offsets(f: Function, index: str, first: int, bases: list[str],
                  types: tuple[Element, ...]) -> list[str]:
    """The operands' addresses at one index of the outer axes.

    Arguments from `first` on: how many axes, then an extent and a stride per operand of each."""
    count, width = f.argument(first), 1 + len(bases)
    left = f.variable("i64", index)
    offsets = [f.variable("i64", 0) for _ in bases]
    with f.loop(0, count, vectorize=False) as i:
        at = f.mul(f.sub(f.sub(count, 1), i), width)
        entries = f.at("%args", f.add(at, first + 1), "i64")
        extent, before = f.load("i64", entries, 8), f.load("i64", left)
        f.store("i64", f.udiv(before, extent), left)
        digit = f.urem(before, extent)
        for j, offset in enumerate(offsets):
            stride = f.load("i64", f.at(entries, 1 + j, "i64"), 8)
            f.store("i64", f.add(f.load("i64", offset), f.mul(digit, stride)), offset)
    return [f.offset(base, f.mul(f.load("i64", offset), t.size))
            for base, offset, t in zip(bases, offsets, types, strict=True)]


_cache: dict[Kernel, str] = {}


def _texts(spec: Kernel) -> str:
    """The text of a product kernel with the functions it calls."""
    found = _cache.get(spec)
    if found is None:
        writer, tile = _Writer(spec), spec.tile
        heights = [tile.rows] + ([tile.rows // 2] if tile.rows > 1 else [])
        functions = [writer.tile_function(r, v)
                     for r in heights for v in range(1, tile.vectors + 1)]
        functions.append(pack_function("pack_b", tile.columns, tile.lanes, spec.b, spec.work))
        functions.append(group_function("pack_b", tile.columns, tile.lanes, spec.b, spec.work))
        if spec.packs_a:
            functions.append(pack_function("pack_a", tile.rows, tile.lanes, spec.a, spec.work))
            functions.append(group_function("pack_a", tile.rows, tile.lanes, spec.a, spec.work))
        found = _cache[spec] = module(*functions, writer.kernel_function())
    return found


def arguments(**values: Any) -> tuple[Any, ...]:
    """The arguments of a product kernel in their order, for the names of `_LAYOUT`."""
    order = sorted(_LAYOUT, key=_LAYOUT.__getitem__)
    assert values.keys() == _LAYOUT.keys(), values.keys() ^ _LAYOUT.keys()
    return tuple(values[name] for name in order)
