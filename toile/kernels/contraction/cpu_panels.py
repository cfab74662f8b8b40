"""Packing of matrices into panels that the tiles of toile's own matrix products read in order.

A panel holds `width` columns (of B; rows of A) for each term of the sum, or for each group of terms
that make a word: [words][width]. Packing converts to the accumulator type, unless terms are
grouped, and pads with zeros.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from toile.kernels.contraction.cpu_instructions import TOP_BITS
from toile.targets.llvm import native
from toile.targets.llvm.elements import transposed
from toile.targets.llvm.product_types import Element, convert
from toile.targets.llvm.text import Function, Operand, constant, inner, kernel, module, typed

DEPTH = 256  # words of the sum per pass over packed panels
SPACING = DEPTH + 4  # from panel to panel, so that they do not map to the same cache sets
PLAIN = "nounwind noinline optsize"  # loops are unrolled by hand: further unrolling only costs time


PARAMETERS = "ptr noalias %to, ptr noalias %from, i64 %sk, i64 %sn, i64 %count, i64 %valid"


class Tile(NamedTuple):
    """A block of C in registers: rows x vectors of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


class Panel(NamedTuple):
    """How a matrix is packed: `width` columns, `lanes` of them at once, `terms` in each word.

    If `flips`, the top bits of the terms are flipped."""

    width: int
    lanes: int
    source: Element
    word: Element
    terms: int = 1
    flips: bool = False

    # ---- words from memory
    def loaded(self, f: Function, rows: list[str], column: int, lanes: int) -> str:
        """Words of adjacent columns from `column` on; `rows`: where the row of each term begins."""
        source, n = self.source, lanes
        parts = [f.load(typed(source.llvm, n), f.at(row, column, source.llvm), source.size)
                 for row in rows]
        if self.terms == 1:
            return convert(f, parts[0], source, self.word, n)
        while len(parts) > 1:  # interleave rows i and i + half: the first row's terms stay first
            half, type = len(parts) // 2, typed(source.llvm, n)
            mask = ", ".join(f"i32 {i}, i32 {n + i}" for i in range(n))
            parts = [f.value(f"shufflevector {type} {parts[i]}, {type} {parts[i + half]}, "
                             f"<{2 * n} x i32> <{mask}>") for i in range(half)]
            n *= 2
        return f.value(f"bitcast {typed(source.llvm, n)} {parts[0]} to "
                       f"{typed(self.word.llvm, lanes)}")

    def adjacent(self, f: Function, start: str, lanes: int) -> str:
        """Words that follow each other in memory."""
        if self.terms == 1:
            return self.loaded(f, [start], 0, lanes)
        return f.load(typed(self.word.llvm, lanes), start, self.source.size)

    def gathered(self, f: Function, start: str, k: str) -> str:
        """Word k of a column, whose terms are `%sk` apart; terms after the last one are 0."""
        source, word = self.source, "0"
        if self.terms == 1:
            return self.loaded(f, [f.at(start, f.mul(k, "%sk"), source.llvm)], 0, 1)
        for i in range(self.terms):
            at = f.add(f.mul(k, self.terms), i)
            exists = f.compare("slt", at, "%count")
            place = f.at(start, f.mul(f.select(exists, at, 0), "%sk"), source.llvm)
            term = f.value(f"zext {source.llvm} {f.load(source.llvm, place, source.size)} to i32")
            term = f.value(f"shl i32 {f.select(exists, term, 0, 'i32')}, {8 * source.size * i}")
            word = f.value(f"or i32 {word}, {term}")
        return word

    def rows(self, f: Function, start: str, k: str) -> list[str]:
        """Where the rows of word k's terms begin."""
        first = f.mul(k, self.terms)
        return [f.at(start, f.mul(f.add(first, i), "%sk"), self.source.llvm)
                for i in range(self.terms)]

    # ---- words to memory
    def store(self, f: Function, words: str, to: str, lanes: int = 1) -> None:
        """Store words of the panel."""
        type = typed(self.word.llvm, lanes)
        if self.flips:
            words = f.value(f"xor {type} {words}, {constant(TOP_BITS, lanes)}")
        f.store(type, words, to, self.word.size)


def pack_function(name: str, p: Panel) -> Function:
    """Copy `count` rows of `valid` elements (at most `width` are taken) to [words][width].

    Vectors of `lanes` are copied at once if either stride is 1; missing elements become zeros."""
    f, width, source, word = inner(name, PARAMETERS, PLAIN), p.width, p.source, p.word
    flat, deep = f.compare("eq", "%sn", 1), f.compare("eq", "%sk", 1)
    words, whole_words = word_count(f, "%count", p.terms), f.udiv("%count", p.terms)

    def pack(j: Operand, group: int) -> None:
        """Copy columns [j, j + group)."""
        start, to = f.at("%from", f.mul("%sn", j), source.llvm), f.at("%to", j, word.llvm)
        whole = f.compare("sge", "%valid", f.add(j, group))
        rows = f.value(f"and i1 {whole}, {flat}")
        across = f.value(f"and i1 {whole}, {deep}")
        across = f.value(f"and i1 {across}, {f.value(f'xor i1 {flat}, true')}")
        square = f.value(f"and i64 {whole_words}, {-group}")
        done = f.select(rows, whole_words, f.select(across, square, 0))
        with f.when(rows), f.loop(0, whole_words, vectorize=False) as k:
            value = p.loaded(f, p.rows(f, start, k), 0, group)
            p.store(f, value, f.at(to, f.mul(k, width), word.llvm), group)
        with f.when(across), f.loop(0, done, group, vectorize=False) as k:
            _transpose(f, f.at(start, f.mul(k, p.terms), source.llvm),
                       f.at(to, f.mul(k, width), word.llvm), group, p)
        left = f.smin(f.sub("%valid", j), group)
        with f.loop(done, words, vectorize=False) as k:
            place = f.at(to, f.mul(k, width), word.llvm)
            f.store(typed(word.llvm, group), zeros(word, group), place, word.size)
            with f.loop(0, left, vectorize=False) as i:
                value = p.gathered(f, f.at(start, f.mul(i, "%sn"), source.llvm), k)
                p.store(f, value, f.at(place, i, word.llvm))

    j = width - width % p.lanes
    if j:
        with f.loop(0, j, p.lanes, vectorize=False) as start:
            pack(start, p.lanes)
    while j < width:
        group = 1 << (width - j).bit_length() - 1
        pack(j, group)
        j += group
    return f


def group_function(pack: Function, p: Panel) -> Function:
    """Pack several panels, SPACING rows apart; `valid` counts the columns of all of them.

    Contiguous rows are read as a whole, others by `pack`, panel by panel."""
    f, width, word = inner(f"{pack.name}_group", PARAMETERS, PLAIN), p.width, p.word
    flat = f.compare("eq", "%sn", 1)
    whole = f.mul(f.udiv(f.select(flat, "%valid", 0), width), width)
    words = f.udiv("%count", p.terms)
    lanes = p.lanes if p.terms == 1 else max(p.lanes, 16 // p.source.size)  # fills registers

    def pack_one(n: str, first: str) -> None:
        """Pack the panel from column n on, from word `first` on."""
        at, term = f.mul(n, SPACING), f.mul(first, p.terms)
        start = f.add(f.mul(n, "%sn"), f.mul(term, "%sk"))
        f.call(pack, f.at("%to", f.add(at, f.mul(first, width)), word.llvm),
               f.at("%from", start, p.source.llvm), "%sk", "%sn", f.sub("%count", term),
               f.sub("%valid", n))

    with f.loop(0, words, vectorize=False) as k:
        rows = p.rows(f, "%from", k)
        place = f.at("%to", f.mul(k, width), word.llvm)
        with f.loop(0, whole, width, vectorize=False) as n:
            starts = [f.at(row, n, p.source.llvm) for row in rows]
            panel = f.at(place, f.mul(n, SPACING), word.llvm)
            for j in range(0, width, lanes):
                group = min(lanes, width - j)
                p.store(f, p.loaded(f, starts, j, group), f.at(panel, j, word.llvm), group)
    if p.terms > 1:
        whole_terms = f.compare("eq", f.mul(words, p.terms), "%count")
        with f.loop(f.select(whole_terms, whole, 0), whole, width) as n:  # the last word
            pack_one(n, words)
    with f.loop(whole, "%valid", width) as n:
        pack_one(n, "0")
    return f


def zeros(element: Element, lanes: int) -> str:
    """A vector of zeros, or one zero."""
    return element.zero if lanes == 1 else "zeroinitializer"


def word_count(f: Function, count: str, terms: int) -> str:
    """How many words hold `count` terms."""
    return f.udiv(f.add(count, terms - 1), terms)


def mask_of(f: Function, count: str, lanes: int) -> str:
    """Which of `lanes` positions are below `count`."""
    narrow = f.value(f"trunc i64 {f.smin(count, lanes)} to i32")
    positions = ", ".join(f"i32 {i}" for i in range(lanes))
    return f.value(f"icmp slt {typed('i32', lanes)} <{positions}>, "
                   f"{f.splat('i32', narrow, lanes)}")


def _transpose(f: Function, start: str, to: str, n: int, p: Panel) -> None:
    """Transpose an n x n block whose columns have unit stride."""
    rows = [p.adjacent(f, f.at(start, f.mul("%sn", i), p.source.llvm), n) for i in range(n)]
    for i, row in enumerate(transposed(f, rows, typed(p.word.llvm, n))):
        p.store(f, row, f.at(to, i * p.width, p.word.llvm), n)


@cache
def pack_kernel(p: Panel) -> str:
    """A kernel that packs all of b: units are panels; args: b, packed (refs), K, N, strides."""
    f, pack = kernel(), pack_function("pack_b", p)
    b, held = f.buffer(0), f.buffer(2)
    k, n, sk, sn = (f.argument(i) for i in range(4, 8))
    words = word_count(f, k, p.terms)
    with f.loop("%lo", "%hi") as panel:
        first = f.mul(panel, p.width)
        f.call(pack, f.at(held, f.mul(first, words), p.word.llvm),
               f.at(b, f.mul(first, sn), p.source.llvm), sk, sn, k, f.sub(n, first))
    return native.WRITTEN_OUT + module(pack, f)
