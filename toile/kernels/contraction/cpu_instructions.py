"""Instructions that add the products of several terms of a sum at once.

Such an instruction reads words of 32 bits, each of which holds a group of adjacent terms: four
8-bit integers, or two bfloat16 numbers. In every lane it adds the products of two words' terms to a
sum: exactly for integers; for bfloat16 in float32, where subnormal numbers count as 0. Which
instructions there are depends on the features of the processor.
"""

from __future__ import annotations

from typing import NamedTuple

from toile.targets.llvm import native
from toile.targets.llvm.product_types import FLOAT32, INT32, Element
from toile.targets.llvm.text import Function, typed

WORD = INT32
TOP_BITS = -0x7F7F7F80  # the word 0x80808080: the top bit of each of its four terms

# The feature, the bytes of a vector, the kinds of the operands' terms, the LLVM intrinsic, and the
# type of its operands. All versions of LLVM accept words as operands of the x86 instructions.
INSTRUCTIONS = (
    ("dotprod", 16, "ii", "llvm.aarch64.neon.sdot.v4i32.v16i8", "<16 x i8>"),
    ("dotprod", 16, "uu", "llvm.aarch64.neon.udot.v4i32.v16i8", "<16 x i8>"),
    ("i8mm", 16, "ui", "llvm.aarch64.neon.usdot.v4i32.v16i8", "<16 x i8>"),
    ("avx512vnni", 64, "ui", "llvm.x86.avx512.vpdpbusd.512", "<16 x i32>"),
    ("avxvnni", 32, "ui", "llvm.x86.avx512.vpdpbusd.256", "<8 x i32>"),
    ("bf16", 16, "hh", "llvm.aarch64.neon.bfdot.v4f32.v8bf16", "<8 x bfloat>"),
    ("avx512bf16", 64, "hh", "llvm.x86.avx512bf16.dpbf16ps.512", "<16 x i32>"),
)


class Grouping(NamedTuple):
    """How many terms a word holds, and how tiles call the instruction that multiplies words.

    If `flips`, the instruction reads the terms of A with the other signedness. Their top bits are
    flipped, which adds 128 to signed terms and subtracts it from unsigned ones. To remove this
    offset, the products of B with TOP_BITS, words of 0x80 bytes, are subtracted from the result."""

    terms: int
    name: str
    operand: str
    swapped: bool  # B's word is the first operand
    flips: bool

    def add(self, f: Function, work: str, total: str, a: str, b: str, lanes: int) -> str:
        """`total`, a vector of type `work`, plus the products of two vectors of words."""
        words = typed(WORD.llvm, lanes)
        if self.operand != words:
            a, b = (f.value(f"bitcast {words} {x} to {self.operand}") for x in (a, b))
        first, second = (b, a) if self.swapped else (a, b)
        return f.value(f"call {work} @{self.name}({work} {total}, {self.operand} {first}, "
                       f"{self.operand} {second})")


    def word(self, work: Element) -> Element:
        """The type of panels' elements, if `work` is the type of sums."""
        return WORD if self.terms > 1 else work


SINGLE = Grouping(1, "", "", False, False)  # for products without such an instruction


def grouping(a: Element, b: Element, c: Element) -> Grouping:
    """The grouping for products of A and B with results in C."""
    kinds = a.kind + b.kind
    fits = c.size <= FLOAT32.size if kinds == "hh" else a.size == b.size == 1 and c.kind in "iu"
    if not fits:
        return SINGLE
    flipped = {"i": "u", "u": "i"}.get(a.kind, a.kind) + b.kind
    for wanted in (kinds, flipped):
        for feature, width, order, name, operand in INSTRUCTIONS:
            if width != native.vector_bytes() or not native.has(feature):
                continue
            if wanted in (order, order[::-1]):  # A comes second if possible: it may be one lane
                return Grouping(WORD.size // a.size, name, operand, wanted == order[::-1],
                                wanted != kinds)
    return SINGLE
