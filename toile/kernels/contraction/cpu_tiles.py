"""toile's own matrix-product kernels: C = A B by register tiles, packed or in place.

A tile of `rows` x `vectors` accumulators stays in registers while it runs over the summed axis.
A is read in place if that axis has unit stride ("rows"), else packed; B is read in place if columns
have unit stride, else packed, a panel at a time, on the stack. Packing also converts the operands
to the accumulator type, or groups the terms of the sum into words, if an instruction multiplies
words (cpu_instructions). All extents and strides are arguments.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import NamedTuple

from toile.kernels.contraction.cpu_instructions import SINGLE, TOP_BITS, Grouping
from toile.kernels.contraction.cpu_panels import (
    DEPTH,
    PLAIN,
    SPACING,
    Panel,
    Tile,
    group_function,
    mask_of,
    pack_function,
    word_count,
)
from toile.targets.llvm import native
from toile.targets.llvm.product_types import Element, convert, plus, plus_product
from toile.targets.llvm.text import Function, Operand, constant, inner, kernel, module, typed

STACK_A, STACK_B = 256 << 10, 128 << 10  # bytes of packed operands on the stack
LINE = 64  # bytes of a cache line
MASKED_BYTES = 64  # the size of vectors whose loads and stores may leave out lanes (AVX-512)

# The arguments of a product kernel after references to a, b and c; those of outer axes follow.
LAYOUT = (
    "m", "n", "k", "a_row", "a_sum", "b_sum", "b_column", "c_row", "c_column",
    "row_step", "column_step", "row_blocks", "column_blocks", "b_mode", "adds",
)  # fmt: skip
FIRST = 6  # index of the first number of a layout
IN_PLACE, PACK, PACKED = range(3)  # how B is given ("b_mode")


class Kernel(NamedTuple):
    """What determines the text of a product kernel."""

    tile: Tile
    packs_a: bool
    a: Element
    b: Element
    c: Element
    work: Element
    grouping: Grouping = SINGLE

    @property
    def text(self) -> str:
        return _text(self)


def lane_operands() -> bool:
    """Whether a multiplication may take one lane of a register as operand (NEON)."""
    return platform.machine().lower() in ("arm64", "aarch64")


def choose_tile(work: Element, rows: int, packs_a: bool) -> Tile:
    """The tile for a product with `rows` rows on this machine."""
    width = native.vector_bytes()
    lanes = width // work.size
    if rows == 1:
        return Tile(1, 8, lanes)
    if rows <= 4 and width <= 32:
        return Tile(4, 4 if width == 16 else 2, lanes)
    if width == 64:  # pointers to twelve rows do not fit in the integer registers
        return Tile(12, 2, lanes) if packs_a and rows > 6 else Tile(8, 3, lanes)
    if width == 32:
        return Tile(6, 2, lanes)
    if packs_a:
        return Tile(8, 3, lanes)
    return Tile(8, 2, lanes) if rows <= 8 else Tile(4, 4, lanes)


class _Tiles:
    """Writes the functions of one product kernel that compute tiles."""

    def __init__(self, spec: Kernel):
        self.spec, self.tile, self.work = spec, spec.tile, spec.work
        self.word = spec.grouping.word(spec.work)
        self.vector = typed(spec.work.llvm, spec.tile.lanes)
        self.words = typed(self.word.llvm, spec.tile.lanes)
        self.by_lane = lane_operands()
        self.align = self.word.size if spec.packs_a else spec.a.size  # of a's words

    # ---- arithmetic on vectors
    def splat(self, f: Function, vector: str, lane: int) -> str:
        picks = constant(lane, self.tile.lanes)
        return f.value(f"shufflevector {self.words} {vector}, {self.words} poison, "
                       f"<{self.tile.lanes} x i32> {picks}")

    def broadcast(self, f: Function, pointer: str) -> str:
        value = f.load(self.word.llvm, pointer, self.align)
        first = f.value(f"insertelement {self.words} poison, {self.word.llvm} {value}, i32 0")
        return self.splat(f, first, 0)

    def flipped(self, f: Function, words: str) -> str:
        """Words of a that are not packed, as the instruction reads them."""
        top = constant(TOP_BITS, self.tile.lanes)
        return f.value(f"xor {self.words} {words}, {top}") if self.spec.grouping.flips else words

    def accumulate(self, f: Function, a: str, b: str, slot: str) -> None:
        """slot += a * b; for booleans, slot |= a & b."""
        old, lanes = f.load(self.vector, slot), self.tile.lanes
        if self.spec.grouping.terms > 1:
            new = self.spec.grouping.add(f, self.vector, old, a, b, lanes)
        else:
            new = plus_product(f, self.work, old, a, b, lanes)
        f.store(self.vector, new, slot)

    # ---- one tile
    def tile_function(self, rows: int, vectors: int) -> Function:
        """c[rows, vectors] (+)= a b over `count` words, for `height` rows and `width` columns."""
        f = inner(
            f"tile{rows}x{vectors}",
            "i64 %count, ptr noalias %a, i64 %sa, ptr noalias %b, i64 %sb, ptr noalias %c, "
            "i64 %row, i64 %column, i64 %height, i64 %width, i1 %adds", PLAIN)
        acc = [[f.variable(self.vector, "zeroinitializer") for _ in range(vectors)]
               for _ in range(rows)]
        self.excess = [f.variable(self.vector, "zeroinitializer")
                       for _ in range(vectors * self.spec.grouping.flips)]
        if self.spec.packs_a:
            self._sum_packed(f, acc)
        else:
            self._sum_rows(f, acc)
        for slots in acc:
            for slot, excess in zip(slots, self.excess, strict=False):
                total, less = f.load(self.vector, slot), f.load(self.vector, excess)
                f.store(self.vector, f.value(f"sub {self.vector} {total}, {less}"), slot)
        self._store_tile(f, acc)
        return f

    def _terms(self, f: Function, index: Operand, acc: list[list[str]],
               row: Callable[[int], str]) -> None:
        """Add one word of the sum: `row(i)` is the vector of a's word in row i."""
        t, lanes = self.word.llvm, self.tile.lanes
        start = f.at("%b", f.mul(index, "%sb"), t)
        columns = [f.load(self.words, f.at(start, j * lanes, t), self.word.size)
                   for j in range(len(acc[0]))]
        for b, slot in zip(columns, self.excess, strict=False):
            self.accumulate(f, constant(TOP_BITS, lanes), b, slot)
        for i, slots in enumerate(acc):
            a = row(i)
            for b, slot in zip(columns, slots, strict=True):
                self.accumulate(f, a, b, slot)

    def _sum_rows(self, f: Function, acc: list[list[str]]) -> None:
        """Sum with rows of a in place, which have unit stride along the sum."""
        t, lanes = self.word.llvm, self.tile.lanes
        last = f.sub("%height", 1)
        starts = [f.at("%a", f.mul(f.smin(i, last), "%sa"), self.spec.a.llvm)
                  for i in range(len(acc))]
        step = lanes if self.by_lane else self._unrolled(acc)
        whole = f.value(f"and i64 %count, {-step}") if step > 1 else "%count"
        with f.loop(0, whole, step, vectorize=False) as k:
            held = [self.flipped(f, f.load(self.words, f.at(s, k, t), self.align)) for s in starts
                    ] if self.by_lane else []
            for kk in range(step):
                index = f.add(k, kk)

                def row(i: int, kk: int = kk, index: str = index) -> str:
                    if self.by_lane:
                        return self.splat(f, held[i], kk)
                    return self.flipped(f, self.broadcast(f, f.at(starts[i], index, t)))

                self._terms(f, index, acc, row)
        if step > 1:
            with f.loop(whole, "%count", vectorize=False) as k:
                self._terms(f, k, acc, lambda i: self.flipped(
                    f, self.broadcast(f, f.at(starts[i], k, t))))

    def _sum_packed(self, f: Function, acc: list[list[str]]) -> None:
        """Sum with `a` packed as [count][tile.rows]."""
        t, lanes, rows = self.word.llvm, self.tile.lanes, len(acc)

        def term(k: str) -> None:
            start = f.at("%a", f.mul(k, self.tile.rows), t)
            if self.by_lane and rows % lanes == 0:
                held = [f.load(self.words, f.at(start, i, t), self.align)
                        for i in range(0, rows, lanes)]
                self._terms(f, k, acc, lambda i: self.splat(f, held[i // lanes], i % lanes))
            else:
                self._terms(f, k, acc, lambda i: self.broadcast(f, f.at(start, i, t)))

        unroll = 4 if self.by_lane else self._unrolled(acc)
        whole = f.value(f"and i64 %count, {-unroll}") if unroll > 1 else "%count"
        with f.loop(0, whole, unroll, vectorize=False) as k:
            for kk in range(unroll):
                term(f.add(k, kk))
        if unroll > 1:
            with f.loop(whole, "%count", vectorize=False) as k:
                term(k)

    def _unrolled(self, acc: list[list[str]]) -> int:
        """How many terms of the sum an iteration adds: more for tiles with less work."""
        work = len(acc) * len(acc[0])
        return 4 if work <= 8 else 2

    def _store_tile(self, f: Function, acc: list[list[str]]) -> None:
        c, work, lanes = self.spec.c, self.work, self.tile.lanes
        rows, vectors = len(acc), len(acc[0])
        whole = f.compare("eq", "%height", rows)
        for a, b in (("%width", vectors * lanes), ("%column", 1)):
            whole = f.all(whole, f.compare("eq", a, b))
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

        adds = c == work or c.kind in "iu"  # integers may be converted before they are added
        with f.when(whole):
            for adding in ((True, False) if adds else (False,)):
                with f.when("%adds", adding):
                    store_all(adding)
        with f.unless(whole):
            self._store_part(f, acc, adds)

    def _store_part(self, f: Function, acc: list[list[str]], adds: bool) -> None:
        """Store a tile at an edge or with strided columns: via memory, in vectors if possible."""
        c, work, lanes = self.spec.c, self.work, self.tile.lanes
        rows, vectors = len(acc), len(acc[0])
        spill = f.alloca(work.llvm, rows * vectors * lanes, 64)
        for at, slot in enumerate(slot for slots in acc for slot in slots):
            place = f.at(spill, at * lanes, work.llvm)
            f.store(self.vector, f.load(self.vector, slot), place, work.size)
        flat = f.compare("eq", "%column", 1)
        # Where registers have masks, the last columns are lanes of one more vector.
        masked = lanes * work.size == MASKED_BYTES and c.size >= 4
        whole = f.select(flat, "%width", 0)
        if not masked:
            whole = f.value(f"and i64 {whole}, {-lanes}")

        def move(row: str, held: str, j: str, n: int, mask: str = "") -> None:
            type, place = typed(c.llvm, n), f.at(row, f.mul(j, "%column"), c.llvm)
            value = f.load(typed(work.llvm, n), f.at(held, j, work.llvm), work.size)
            value = convert(f, value, work, c, n)
            if adds:
                old = f.load(type, place, c.size) if not mask else f.masked_load(
                    c.llvm, place, mask, n, c.size)
                value = f.select("%adds", plus(f, c, old, value, n), value, type)
            if mask:
                f.masked_store(c.llvm, value, place, mask, n, c.size)
            else:
                f.store(type, value, place, c.size)

        with f.loop(0, "%height", vectorize=False) as i:
            row = f.at("%c", f.mul("%row", i), c.llvm)
            held = f.at(spill, f.mul(i, vectors * lanes), work.llvm)
            with f.loop(0, whole, lanes, vectorize=False) as j:
                mask = mask_of(f, f.sub("%width", j), lanes) if masked else ""
                move(row, held, j, lanes, mask)
            with f.loop(whole, "%width", vectorize=False) as j:
                move(row, held, j, 1)


class _ProductKernel:
    """Writes the kernel that packs blocks of the operands and calls the tiles."""

    def __init__(self, spec: Kernel):
        self.spec, self.tile, self.terms = spec, spec.tile, spec.grouping.terms
        self.word = spec.grouping.word(spec.work)
        self.f = f = kernel(PLAIN)
        tile, heights = spec.tile, dict.fromkeys((spec.tile.rows, spec.tile.rows // 2 or 1))
        writer = _Tiles(spec)
        self.tiles = {(rows, vectors): writer.tile_function(rows, vectors)
                      for rows in heights for vectors in range(1, tile.vectors + 1)}
        self.packs = {}
        for side, width in (("b", tile.columns), ("a", tile.rows))[: 1 + spec.packs_a]:
            source, flips = getattr(spec, side), side == "a" and spec.grouping.flips
            terms = 1 if source == self.word else self.terms  # b may hold words already
            how = Panel(width, tile.lanes, source, self.word, terms, flips)
            pack = pack_function(f"pack_{side}", how)
            self.packs[side] = pack, group_function(pack, how)
        self.size = f.arguments(FIRST, LAYOUT)
        self.write()

    def text(self) -> str:
        """The module with the kernel and the functions it calls."""
        functions = *self.tiles.values(), *chain(*self.packs.values()), self.f
        return native.WRITTEN_OUT + module(*functions)

    def write(self) -> None:
        """Write the loops over units, parts of the sum, blocks of rows and groups of panels."""
        f, spec, word, size = self.f, self.spec, self.word, self.size
        bases = [f.buffer(i) for i in (0, 2, 4)]
        block, group = _block_rows(spec), _group_columns(spec)
        held_a = f.alloca(word.llvm, block * SPACING, 64) if spec.packs_a else ""
        held_b = f.alloca(word.llvm, group * SPACING, 64)
        adds_first = f.compare("ne", size["adds"], 0)
        with f.loop("%lo", "%hi") as unit:
            rest, column_block = divide(f, unit, size["column_blocks"])
            rest, row_block = divide(f, rest, size["row_blocks"])
            a, b, c = outer_offsets(f, rest, FIRST + len(LAYOUT), bases, (spec.a, spec.b, spec.c))
            m0, n0 = f.mul(row_block, size["row_step"]), f.mul(column_block, size["column_step"])
            m1 = f.smin(f.add(m0, size["row_step"]), size["m"])
            n1 = f.smin(f.add(n0, size["column_step"]), size["n"])
            rows = block if spec.packs_a else f.sub(m1, m0)
            with f.loop(0, size["k"], DEPTH * self.terms) as k0:
                count = f.smin(DEPTH * self.terms, f.sub(size["k"], k0))
                words = word_count(f, count, self.terms)
                adds = f.value(f"or i1 {adds_first}, {f.compare('ne', k0, 0)}")
                with f.loop(m0, m1, rows) as m:
                    end = f.smin(f.add(m, rows), m1)
                    a_block = f.at(a, f.add(f.mul(m, size["a_row"]), f.mul(k0, size["a_sum"])),
                                   spec.a.llvm)
                    if spec.packs_a:
                        f.call(self.packs["a"][1], held_a, a_block, size["a_sum"], size["a_row"],
                               count, f.sub(end, m))
                    with f.loop(n0, n1, group) as first:
                        last = f.smin(f.add(first, group), n1)
                        at = f.udiv(k0, self.terms) if spec.b == word else k0
                        b_block = f.at(b, f.mul(at, size["b_sum"]), spec.b.llvm)
                        self._pack_b(b_block, held_b, first, last, count)
                        with f.loop(first, last, self.tile.columns) as n:
                            width = f.smin(f.sub(last, n), self.tile.columns)
                            panel = self._panel(b_block, held_b, first, n, count, width)
                            ahead = self._ahead(b_block, (n0, n1), (n, group), k0, count)
                            self._tiles((a_block, held_a), panel, c, (m, end), n, words, width,
                                        adds, ahead)

    def _ahead(self, b: str, columns: tuple[str, str], at: tuple[str, int], k0: str, count: str
               ) -> tuple[str, str]:
        """What a panel's tiles prefetch, if b is packed: the panel that is packed a group later.

        Returns an address and the number of rows."""
        f, size, (n0, n1), (n, group) = self.f, self.size, columns, at
        later = f.add(n, group)
        here = f.compare("slt", later, n1)
        below = f.sub(f.sub(size["k"], k0), count)
        turned = f.add(n0, f.urem(f.sub(n, n0), group))  # in the next rows
        rows = f.select(here, count, f.smin(below, count))
        flat = f.all(f.compare("eq", size["b_mode"], PACK), f.compare("eq", size["b_column"], 1))
        place = f.add(f.select(here, later, turned),
                      f.mul(f.select(here, 0, count), size["b_sum"]))
        return f.at(b, place, self.spec.b.llvm), f.select(flat, rows, 0)

    def _prefetch(self, ahead: tuple[str, str], rows: tuple[str, str], i: str) -> None:
        """Prefetch a part of the rows of a panel: that of the tile that begins in row i."""
        f, size, (start, count), (m, end) = self.f, self.size, ahead, rows
        done, all_ = f.sub(i, m), f.sub(end, m)
        first = f.udiv(f.mul(count, done), all_)
        last = f.udiv(f.mul(count, f.smin(f.add(done, self.tile.rows), all_)), all_)
        with f.loop(first, last, vectorize=False) as k:
            row = f.at(start, f.mul(k, size["b_sum"]), self.spec.b.llvm)
            for byte in range(0, self.tile.columns * self.spec.b.size, LINE):
                f.do(f"call void @llvm.prefetch.p0(ptr {f.offset(row, byte)}, i32 0, i32 2, i32 1)")

    def _pack_b(self, b: str, held: str, first: str, last: str, count: str) -> None:
        """Pack columns [first, last) of b into panels [count][tile.columns], if requested."""
        f, size = self.f, self.size
        with f.when(f.compare("eq", size["b_mode"], PACK)):
            start = f.at(b, f.mul(first, size["b_column"]), self.spec.b.llvm)
            f.call(self.packs["b"][1], held, start, size["b_sum"], size["b_column"], count,
                   f.sub(last, first))

    def _panel(
        self, b: str, held: str, first: str, n: str, count: str, width: str
    ) -> tuple[str, str]:
        """The address of a panel of b, and its stride along the sum."""
        f, tile, size = self.f, self.tile, self.size
        place = f.at(b, f.mul(n, size["b_column"]), self.spec.b.llvm)
        mine = f.at(held, f.mul(f.sub(n, first), SPACING), self.word.llvm)
        packed = f.compare("eq", size["b_mode"], PACK)
        # An incomplete vector would read beyond the end of b.
        broken = f.compare("ne", f.value(f"and i64 {width}, {tile.lanes - 1}"), 0)
        tail = f.all(broken, f.compare("eq", size["b_mode"], IN_PLACE))
        with f.when(tail):
            f.call(self.packs["b"][0], mine, place, size["b_sum"], size["b_column"], count, width)
        packed = f.value(f"or i1 {packed}, {tail}")
        panel = f.select(packed, mine, place, "ptr")
        return panel, f.select(packed, tile.columns, size["b_sum"])

    def _tiles(
        self, sources: tuple[str, str], panel: tuple[str, str], c: str, rows: tuple[str, str],
        n: str, words: str, width: str, adds: str, ahead: tuple[str, str],
    ) -> None:  # fmt: skip
        """Call all tiles of some rows for one panel; `sources`: `a` in place, and `a` packed."""
        f, tile, size, (m, end) = self.f, self.tile, self.size, rows
        vectors = f.udiv(f.add(width, tile.lanes - 1), tile.lanes)
        column = f.mul(n, size["c_column"])
        for j in range(tile.vectors, 0, -1):
            with f.when(f.compare("eq", vectors, j)), f.loop(m, end, tile.rows) as i:
                self._prefetch(ahead, rows, i)
                height = f.smin(f.sub(end, i), tile.rows)
                step, type = (SPACING, self.word) if self.spec.packs_a else (
                    size["a_row"], self.spec.a)
                start = f.at(sources[self.spec.packs_a], f.mul(f.sub(i, m), step), type.llvm)
                place = f.at(c, f.add(f.mul(i, size["c_row"]), column), self.spec.c.llvm)
                args = (words, start, size["a_row"], *panel, place, size["c_row"],
                        size["c_column"], height, width, adds)
                half = tile.rows // 2
                if not half:
                    f.call(self.tiles[tile.rows, j], *args)
                    continue
                tall = f.compare("sgt", height, half)
                for holds, number in ((True, tile.rows), (False, half)):
                    with f.when(tall, holds):
                        f.call(self.tiles[number, j], *args)


def _block_rows(spec: Kernel) -> int:
    """How many rows of a are packed at a time: a multiple of the tile's rows."""
    return max(1, STACK_A // (SPACING * spec.work.size * spec.tile.rows)) * spec.tile.rows


def _group_columns(spec: Kernel) -> int:
    """How many columns of b are packed at a time; rows of b are then read in long runs."""
    return max(1, STACK_B // (SPACING * spec.work.size * spec.tile.columns)) * spec.tile.columns


def divide(f: Function, index: str, extent: str) -> tuple[str, str]:
    """Quotient and remainder."""
    one = f.compare("eq", extent, 1)
    divisor = f.select(one, 1, extent)
    return f.udiv(index, divisor), f.urem(index, divisor)


def outer_offsets(f: Function, index: str, first: int, bases: list[str],
                  types: tuple[Element, ...]) -> list[str]:
    """The operands' addresses at one index of the outer axes.

    The arguments from `first` on: how many axes; for each, its extent and a stride per operand."""
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
    return [f.step(base, f.load("i64", offset), t.size)
            for base, offset, t in zip(bases, offsets, types, strict=True)]


@cache
def _text(spec: Kernel) -> str:
    """The text of a product kernel with the functions it calls."""
    return _ProductKernel(spec).text()


def arguments(layout: tuple[str, ...], **values: int) -> tuple[int, ...]:
    """The numbers that a kernel is given, in the order of its layout."""
    assert values.keys() == set(layout), values.keys() ^ set(layout)
    given = [values[name] for name in layout]
    return tuple(x + 0 if isinstance(x, int) else int(x) for x in given)
