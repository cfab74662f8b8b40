"""Kernels of matrix products for the tile registers of x86 processors (AMX).

A tile has 16 rows of 64 bytes. A tile of A holds rows with 16 words of the sum each, a tile of B
one word of 16 columns in each row, and a tile of C 16 x 16 sums; a word is a group of adjacent
terms (two bfloat16 numbers, four 8-bit integers). Blocks of 2 x 2 tiles of C stay in registers. If
the sum is long, they are kept in memory, unrounded, between its parts; so the order of each sum
depends on its length alone.

A has no incomplete tiles: it is read in place if its rows allow that, else packed as [tiles of
rows][tiles of words][16][64 bytes]. B is packed as [panels][words][32 columns], in a stage before
the product or, in parts, by each unit. Zeros fill the packed operands up to whole tiles.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from toile.kernels.contraction.cpu_instructions import WORD
from toile.kernels.contraction.cpu_panels import (
    PARAMETERS,
    PLAIN,
    Panel,
    mask_of,
    pack_function,
    word_count,
)
from toile.kernels.contraction.cpu_tiles import FIRST, PACKED, divide, outer_offsets
from toile.targets.llvm import native
from toile.targets.llvm.elements import transposed
from toile.targets.llvm.product_types import FLOAT32, INT32, Element, convert
from toile.targets.llvm.text import Function, inner, kernel, module, typed

SIDE = 16  # rows of a tile, and words in each
ROW_BYTES = 64
WIDTH = 2 * SIDE  # columns of a panel
DEPTH = 32  # tiles of the sum in a part: 64 KB of a panel, which stay in the caches
ROWS = 256  # rows whose sums a unit keeps between such parts

# The arguments of a product kernel after references to a, b and c; those of outer axes follow.
# `blocks`: tiles of the sum; `last_row`: where the last tile of rows that may be read begins.
LAYOUT = (
    "m", "n", "k", "blocks", "a_row", "a_step", "a_block", "last_row", "b_sum", "b_column",
    "c_row", "c_column", "row_step", "column_step", "row_blocks", "column_blocks", "b_mode",
)  # fmt: skip
# All eight tile registers have 16 rows of 64 bytes.
_CONFIGURATION = "@shapes = private constant <{ i8, [15 x i8], [8 x i16], [16 x i8], [8 x i8], " \
    "[8 x i8] }> <{ i8 1, [15 x i8] zeroinitializer, [8 x i16] [" + ", ".join(
        [f"i16 {ROW_BYTES}"] * 8) + "], [16 x i8] zeroinitializer, [8 x i8] [" + ", ".join(
        [f"i8 {SIDE}"] * 8) + "], [8 x i8] zeroinitializer }>, align 64\n"
ROUND = "llvm.x86.avx512bf16.cvtneps2bf16.512"
_C, _A, _B = 0, 4, 6  # the first tile register for C, A and B


class Kernel(NamedTuple):
    """What determines the text of a product kernel: types in memory; `packed`: B always is."""

    a: Element
    b: Element
    c: Element

    @property
    def terms(self) -> int:
        """How many terms of the sum a word holds."""
        return WORD.size // self.a.size

    @property
    def work(self) -> Element:
        return FLOAT32 if self.a.kind == "h" else INT32

    @property
    def instruction(self) -> str:
        """The instruction that multiplies two tiles and adds the products to a third one."""
        if self.a.kind == "h":
            return "tdpbf16ps"
        letters = {"i": "s", "u": "u"}
        return f"tdpb{letters[self.a.kind]}{letters[self.b.kind]}d"

    @property
    def panel(self) -> Panel:
        """How B is packed."""
        return Panel(WIDTH, SIDE, self.b, WORD, self.terms)


def supports(a: Element | None, b: Element | None, c: Element | None) -> bool:
    """Whether this machine multiplies tiles of A and B, with results in C."""
    if not (a and b and c and native.has("amx-tile")) or c.size > WORD.size:
        return False
    if a.kind + b.kind == "hh":
        return c.kind in "fh" and native.has("amx-bf16")
    return (a.size == b.size == 1 and a.kind in "iu" and b.kind in "iu" and c.kind in "iu"
            and native.has("amx-int8"))


# ---- packing
def _pack_b(p: Panel) -> tuple[Function, Function]:
    """Functions that pack a panel: `count` terms, then zeros up to whole tiles."""
    general = pack_function("pack_part", p)
    f = inner("pack", PARAMETERS, PLAIN)
    flat = f.all(f.compare("eq", "%sn", 1), f.compare("sge", "%valid", p.width))
    whole = f.select(flat, f.udiv("%count", p.terms), 0)
    with f.loop(0, whole, vectorize=False) as k:
        words = p.loaded(f, p.rows(f, "%from", k), 0, p.width)
        p.store(f, words, f.at("%to", f.mul(k, p.width), p.word.llvm), p.width)
    done = f.mul(whole, p.terms)
    left = f.sub("%count", done)
    with f.when(f.compare("sgt", left, 0)):
        f.call(general, f.at("%to", f.mul(whole, p.width), p.word.llvm),
               f.at("%from", f.mul(done, "%sk"), p.source.llvm), "%sk", "%sn", left, "%valid")
    words = word_count(f, "%count", p.terms)
    end = f.mul(word_count(f, words, SIDE), SIDE)
    with f.loop(words, end, vectorize=False) as k:
        place = f.at("%to", f.mul(k, p.width), p.word.llvm)
        f.store(typed(p.word.llvm, p.width), "zeroinitializer", place, p.word.size)
    return general, f


@cache
def pack_b_kernel(p: Panel) -> str:
    """Packs all of B. Units are tiles of words; arguments: refs of b and the panels, K, N, strides.

    The rows of B that a unit reads are read from left to right."""
    f, (general, pack) = kernel(), _pack_b(p)
    b, held = f.buffer(0), f.buffer(2)
    k, n, sk, sn = (f.argument(i) for i in range(4, 8))
    blocks = word_count(f, k, p.terms * SIDE)
    with f.loop("%lo", "%hi") as block:
        first = f.mul(block, p.terms * SIDE)
        start, count = f.at(b, f.mul(first, sk), p.source.llvm), f.smin(
            f.sub(k, first), p.terms * SIDE)
        with f.loop(0, n, p.width) as column:
            tile = f.add(f.mul(f.udiv(column, p.width), blocks), block)
            f.call(pack, f.at(held, f.mul(tile, SIDE * p.width), p.word.llvm),
                   f.at(start, f.mul(column, sn), p.source.llvm), sk, sn, count,
                   f.sub(n, column))
    return module(general, pack, f)


def _pack_a(p: Panel) -> Function:
    """A function that packs `valid` rows into tiles; `sn` is the distance of rows."""
    f = inner("pack", PARAMETERS, PLAIN)
    source, row = p.source, ROW_BYTES // p.source.size
    words, vector = typed(p.word.llvm, SIDE), typed(p.source.llvm, row)
    blocks, whole = f.udiv(f.add("%count", row - 1), row), f.udiv("%count", row)
    along, across = f.compare("eq", "%sk", 1), f.compare("eq", "%sn", 1)
    across = f.all(across, f.compare("eq", "%valid", SIDE))
    across = f.all(across, f.value(f"xor i1 {along}, true"))
    done = f.select(along, blocks, f.select(across, whole, 0))

    def tile(k: str) -> str:
        return f.at("%to", f.mul(k, SIDE * SIDE), p.word.llvm)

    with f.when(along), f.loop(0, "%valid", vectorize=False) as i:
        start = f.at("%from", f.mul(i, "%sn"), source.llvm)
        with f.loop(0, blocks, vectorize=False) as k:
            at = f.mul(k, row)
            mask = mask_of(f, f.sub("%count", at), row)
            value = f.masked_load(source.llvm, f.at(start, at, source.llvm), mask, row, source.size)
            f.store(vector, value, f.at(tile(k), f.mul(i, SIDE), p.word.llvm), p.word.size)
    with f.when(across), f.loop(0, whole, vectorize=False) as k:
        first = f.mul(k, SIDE)
        columns = [p.loaded(f, p.rows(f, "%from", f.add(first, j)), 0, SIDE) for j in range(SIDE)]
        for number, value in enumerate(transposed(f, columns, words)):
            f.store(words, value, f.at(tile(k), number * SIDE, p.word.llvm), p.word.size)
    last = word_count(f, "%count", p.terms)
    with f.loop(done, blocks, vectorize=False) as k, f.loop(0, "%valid", vectorize=False) as i:
        start, place = f.at("%from", f.mul(i, "%sn"), source.llvm), f.at(
            tile(k), f.mul(i, SIDE), p.word.llvm)
        first = f.mul(k, SIDE)
        end = f.smin(SIDE, f.sub(last, first))
        with f.loop(0, end, vectorize=False) as j:
            p.store(f, p.gathered(f, start, f.add(first, j)), f.at(place, j, p.word.llvm))
        with f.loop(end, SIDE, vectorize=False) as j:
            f.store(p.word.llvm, p.word.zero, f.at(place, j, p.word.llvm), p.word.size)
    with f.loop("%valid", SIDE, vectorize=False) as i, f.loop(0, blocks, vectorize=False) as k:
        f.store(words, "zeroinitializer", f.at(tile(k), f.mul(i, SIDE), p.word.llvm), p.word.size)
    return f


@cache
def pack_a_kernel(source: Element) -> str:
    """Packs all of A into tiles. Units are tiles of rows; arguments: refs of a and the tiles, M, K,
    strides, tiles of rows; outer axes."""
    terms = WORD.size // source.size
    f, pack = kernel(), _pack_a(Panel(SIDE, SIDE, source, WORD, terms))
    a, held = f.buffer(0), f.buffer(2)
    m, k, sm, sk, tiles = (f.argument(i) for i in range(4, 9))
    length = f.mul(word_count(f, k, terms * SIDE), SIDE * SIDE)
    with f.loop("%lo", "%hi") as unit:
        rest, tile = divide(f, unit, tiles)
        (start,) = outer_offsets(f, rest, 9, [a], (source,))
        first = f.mul(tile, SIDE)
        f.call(pack, f.at(held, f.mul(unit, length), WORD.llvm),
               f.at(start, f.mul(first, sm), source.llvm), sk, sm, k,
               f.smin(f.sub(m, first), SIDE))
    return module(pack, f)


# ---- instructions
def _load(f: Function, tile: int, place: str, stride: str | int) -> None:
    f.do(f"call void @llvm.x86.tileloadd64(i8 {tile}, ptr {place}, i64 {stride})")


def _step_function(spec: Kernel, rows: int, columns: int, listed: bool) -> Function:
    """Add `blocks` tiles of the sum to rows x columns tiles of C at `sums`; the first time to 0.

    If `listed`, %places is a list of where the tiles of a row begin, else the distance of two."""
    kind = "ptr" if listed else "i64"
    f = inner(f"step{rows}x{columns}",
              f"i64 %blocks, ptr %a0, ptr %a1, i64 %a_row, {kind} %places, ptr %b, ptr %sums, "
              "i1 %adds", PLAIN)
    stride = WIDTH * WORD.size
    places = [(i, j, f.at("%sums", i * SIDE * WIDTH + j * SIDE, WORD.llvm))
              for i in range(rows) for j in range(columns)]
    with f.when("%adds"):
        for i, j, place in places:
            _load(f, _C + 2 * i + j, place, stride)
    with f.unless("%adds"):
        for i, j, _ in places:
            f.do(f"call void @llvm.x86.tilezero(i8 {_C + 2 * i + j})")
    with f.loop(0, "%blocks", vectorize=False) as k:
        b = f.at("%b", f.mul(k, SIDE * WIDTH), WORD.llvm)
        at = f.load("i64", f.at("%places", k, "i64"), 8) if listed else f.mul(k, "%places")
        for j in range(columns):
            _load(f, _B + j, f.at(b, j * SIDE, WORD.llvm), stride)
        for i in range(rows):
            _load(f, _A + i, f.offset(f"%a{i}", at), "%a_row")
            for j in range(columns):
                f.do(f"call void @llvm.x86.{spec.instruction}(i8 {_C + 2 * i + j}, i8 {_A + i}, "
                     f"i8 {_B + j})")
    for i, j, place in places:
        f.do(f"call void @llvm.x86.tilestored64(i8 {_C + 2 * i + j}, ptr {place}, i64 {stride})")
    return f


def _store_function(spec: Kernel) -> Function:
    """Round `height` rows of sums and store them in C, `width` columns of them."""
    f = inner("store", "ptr noalias %sums, ptr noalias %c, i64 %row, i64 %column, i64 %height, "
              "i64 %width", PLAIN)
    work, c = spec.work, spec.c
    out = typed(c.llvm, SIDE)
    flat = f.compare("eq", "%column", 1)
    whole = f.all(flat, f.compare("eq", "%width", WIDTH))

    def vectors(i: str) -> list[tuple[str, str]]:
        """The vectors of row i, and their places in C."""
        row, held = f.at("%c", f.mul("%row", i), c.llvm), f.at(
            "%sums", f.mul(i, WIDTH), work.llvm)
        found = []
        for j in range(0, WIDTH, SIDE):
            value = f.load(typed(work.llvm, SIDE), f.at(held, j, work.llvm), work.size)
            found.append((rounded_sums(f, value, work, c), f.at(row, j, c.llvm)))
        return found

    with f.when(whole), f.loop(0, "%height", vectorize=False) as i:
        for value, place in vectors(i):
            f.store(out, value, place, c.size)
    partly = f.all(flat, f.value(f"xor i1 {whole}, true"))
    with f.when(partly):
        masks = [mask_of(f, f.sub("%width", j), SIDE) for j in range(0, WIDTH, SIDE)]
        with f.loop(0, "%height", vectorize=False) as i:
            for (value, place), mask in zip(vectors(i), masks, strict=True):
                f.masked_store(c.llvm, value, place, mask, SIDE, c.size)
    with f.unless(flat), f.loop(0, "%height", vectorize=False) as i:
        with f.loop(0, "%width", vectorize=False) as j:
            at = f.add(f.mul(i, WIDTH), j)
            value = f.load(work.llvm, f.at("%sums", at, work.llvm), work.size)
            place = f.at("%c", f.add(f.mul("%row", i), f.mul("%column", j)), c.llvm)
            f.store(c.llvm, convert(f, value, work, c), place, c.size)
    return f


def rounded_sums(f: Function, sums: str, work: Element, c: Element) -> str:
    """A vector of sums as numbers of C.

    The instruction that rounds to bfloat16 replaces subnormal numbers by 0; sums have none."""
    if c.kind != "h" or not native.has("avx512bf16"):
        return convert(f, sums, work, c, SIDE)
    value = f.value(f"call <16 x bfloat> @{ROUND}(<16 x float> {sums})")
    return f.value(f"bitcast <16 x bfloat> {value} to <16 x i16>")


# ---- products
@cache
def product_text(spec: Kernel) -> str:
    """The kernel of a product; units are blocks of C."""
    return ProductWriter(spec).text()


class ProductWriter:
    """Writes the kernel of a product."""

    def __init__(self, spec: Kernel, listed: bool = False):
        self.spec, self.f = spec, kernel(PLAIN)
        self.steps = {(i, j): _step_function(spec, i, j, listed) for i in (1, 2) for j in (1, 2)}
        self.packing, self.store = _pack_b(spec.panel), self.store_function()
        self.size = self.f.arguments(FIRST, LAYOUT)
        self.held = self.f.alloca(WORD.llvm, DEPTH * SIDE * WIDTH, 64)
        self.sums = self.f.alloca(WORD.llvm, ROWS * WIDTH, 64)
        self._write()

    def text(self) -> str:
        """The module with the kernel and the functions it calls."""
        return _CONFIGURATION + module(*self.steps.values(), *self.packing, self.store, self.f)

    # ---- what convolutions do in another way
    def store_function(self) -> Function:
        """The function that rounds sums and stores them."""
        return _store_function(self.spec)

    def begin(self) -> None:
        """Write what precedes the units."""

    def places(self, k: str) -> tuple[str, str]:
        """Where tile k of the sum begins in a row of A, in bytes, and where the next ones do."""
        f, size = self.f, self.size
        block = f.mul(size["a_block"], self.spec.a.size)
        return f.mul(k, block), block

    def store_tile(self, sums: str, c: str, row: str, n: str, extent: tuple[str, str]) -> None:
        """Store the sums of a tile of rows from `row` on; `extent`: how many rows and columns."""
        f, size = self.f, self.size
        place = f.add(f.mul(row, size["c_row"]), f.mul(n, size["c_column"]))
        f.call(self.store, sums, f.at(c, place, self.spec.c.llvm), size["c_row"], size["c_column"],
               *extent)

    # ---- the kernel
    def _write(self) -> None:
        """Write the loops over units, blocks of rows, panels, and parts of the sum."""
        f, size, spec = self.f, self.size, self.spec
        bases = [f.buffer(i) for i in (0, 2, 4)]
        f.do("call void @llvm.x86.ldtilecfg(ptr @shapes)")
        self.begin()
        with f.loop("%lo", "%hi") as unit:
            rest, column_block = divide(f, unit, size["column_blocks"])
            rest, row_block = divide(f, rest, size["row_blocks"])
            a, b, c = outer_offsets(f, rest, FIRST + len(LAYOUT), bases, (spec.a, spec.b, spec.c))
            m0, m1 = f.part(row_block, size["row_step"], size["m"])
            n0, n1 = f.part(column_block, size["column_step"], size["n"])
            with f.loop(m0, m1, ROWS) as first, f.loop(n0, n1, WIDTH) as n:
                last = f.smin(f.add(first, ROWS), m1)
                width = f.smin(f.sub(n1, n), WIDTH)
                with f.loop(0, size["blocks"], DEPTH) as k:
                    panel = self._panel(b, n, k, width)
                    with f.loop(first, last, 2 * SIDE) as m:
                        self._tiles(a, panel, c, (first, m, last), (n, width), k)
        f.do("call void @llvm.x86.tilerelease()")

    def _panel(self, b: str, n: str, k: str, width: str) -> str:
        """The address of a part of a panel, which is packed now if it is not yet."""
        f, size, spec = self.f, self.size, self.spec
        packed = f.compare("eq", size["b_mode"], PACKED)
        with f.unless(packed):
            first = f.mul(k, SIDE * spec.terms)
            start = f.add(f.mul(n, size["b_column"]), f.mul(first, size["b_sum"]))
            count = f.smin(f.sub(size["k"], first), DEPTH * SIDE * spec.terms)
            f.call(self.packing[1], self.held, f.at(b, start, spec.b.llvm), size["b_sum"],
                   size["b_column"], count, width)
        block = f.add(f.mul(f.udiv(n, WIDTH), size["blocks"]), k)
        ready = f.at(b, f.mul(block, SIDE * WIDTH), WORD.llvm)
        return f.select(packed, ready, self.held, "ptr")

    def _tiles(self, a: str, panel: str, c: str, rows: tuple[str, str, str],
               columns: tuple[str, str], k: str) -> None:
        """One part of the sums of up to 2 x 2 tiles; after the last part they are stored."""
        f, size, spec, (first, m, last), (n, width) = self.f, self.size, self.spec, rows, columns
        sums = f.at(self.sums, f.mul(f.sub(m, first), WIDTH), WORD.llvm)
        count, height = f.smin(f.sub(size["blocks"], k), DEPTH), f.sub(last, m)
        starts = [f.smin(f.add(m, i * SIDE), size["last_row"]) for i in (0, 1)]
        at, places = self.places(k)
        a0, a1 = (f.offset(f.at(a, f.mul(s, size["a_step"]), spec.a.llvm), at) for s in starts)
        row = f.mul(size["a_row"], spec.a.size)
        args = (count, a0, a1, row, places, panel, sums, f.compare("ne", k, 0))
        tall, wide = f.compare("sgt", height, SIDE), f.compare("sgt", width, SIDE)
        for i, holds in ((2, True), (1, False)):
            with f.when(tall, holds):
                for j, also in ((2, True), (1, False)):
                    with f.when(wide, also):
                        f.call(self.steps[i, j], *args)
        with f.when(f.compare("sge", f.add(k, DEPTH), size["blocks"])):
            for i, start in enumerate(starts):
                begin = f.add(m, i * SIDE)
                rows_here = f.smin(f.sub(last, begin), SIDE)
                with f.when(f.compare("sgt", rows_here, 0)):
                    # The last tile of an operand in place begins earlier: its first rows are done.
                    skipped = f.add(f.sub(begin, start), i * SIDE)
                    place = f.at(sums, f.mul(skipped, WIDTH), WORD.llvm)
                    self.store_tile(place, c, begin, n, (rows_here, width))
