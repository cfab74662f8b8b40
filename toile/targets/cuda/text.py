"""Pieces of CUDA text that kernels share: arguments, divisions, indices.

Extents are arguments, so coordinates are found by dividing by numbers that are not in the text.
Below 2^31 a quotient is one high product and a shift: an extent's word holds the factor as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.targets.cuda.launches import THREADS

MOST = 2**31 - 1  # elements that 32-bit indices can count

# Part of a text that itself waits for the kernels before it, by a call of `ready`. Until then, it
# may only read memory that no kernel of the graph writes.
READY = """\
#define READY
__device__ inline void ready() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
"""


def waiting(early: bool) -> tuple[str, str]:
    """The statements before and after the first reads of a text that has `READY`; `early`: whether
    these reads need not wait."""
    return ("", "ready();") if early else ("ready();", "")


class Words:
    """Numbers the arguments of a kernel in the order in which its text reads them."""

    def __init__(self, first: int = 0):
        self.place = first

    def one(self) -> str:
        self.place += 1
        return f"w[{self.place - 1}]"

    def many(self, count: int) -> list[str]:
        return [self.one() for _ in range(count)]

    def pointer(self, type: str = "char") -> str:
        return f"(({type}*){self.one()})"


def signed(value: int) -> int:
    """The 64 bits of a number as a signed one."""
    value &= 2**64 - 1
    return value - 2**64 if value >> 63 else value


def divisor(n: int, wide: bool = False) -> int:
    """The word by which `cut` divides.

    With 2^(l-1) < n <= 2^l and m = 2^32 (2^l - n) / n + 1, rounded down, the quotient of any
    i < 2^31 is (high half of m i, plus i) >> l."""
    n = max(n, 1)  # an axis without elements is never divided by
    if wide:
        return n
    shift = (n - 1).bit_length()
    factor = (2**32 * (2**shift - n)) // n + 1
    return signed(n | factor << 32)


def divisors(extents: Sequence[int], wide: bool = False) -> list[int]:
    return [divisor(n, wide) for n in extents]


def index_type(wide: bool) -> str:
    """`Index` and the function that divides it: `cut(i, d)` leaves the remainder in i."""
    if wide:
        return (
            "typedef u64 Index;\n"
            "__device__ inline Index cut(Index& i, Word d) {\n"
            "  Index q = i / (u64)d; i -= q * (u64)d; return q;\n}\n"
        )
    return (
        "typedef u32 Index;\n"
        "__device__ inline Index cut(Index& i, Word d) {\n"
        "  u32 n = (u32)d;\n"
        "  u32 q = (__umulhi(i, (u32)((u64)d >> 32)) + i) >> (32 - __clz((int)(n - 1)));\n"
        "  i -= q * n;\n  return q;\n}\n"
    )


def kernel_text(
    body: str, head: str = "", wide: bool | None = False, threads: int = THREADS
) -> str:
    """The text of a kernel: functions and types (`head`), then the statements of one block.

    wide: whether `Index` has 64 bits; None: the kernel does not use it."""
    index = "" if wide is None else index_type(wide)
    return (f"#define THREADS {threads}\n{index}{head}"
            f"__device__ void body(const Word* w, unsigned block) {{\n{body}}}\n")


def decode(
    index: str, extents: Sequence[str], steps: Sequence[tuple[str, Sequence[str]]],
    type: str = "Word",
) -> str:
    """Statements that add a row-major index's offsets to variables; `index` is overwritten.

    steps: (variable, its steps) of each offset, which has this type."""
    lines = []
    for i in reversed(range(len(extents))):
        if i:
            lines.append(f"{{ Index c = {index}; {index} = cut(c, {extents[i]});")
        else:
            lines.append(f"{{ Index c = {index};")
        lines += [f"{name} += ({type})c * {step[i]};" for name, step in steps]
        lines.append("}")
    return " ".join(lines)


def integer_type(dtype: Any) -> str:
    """The type of an integer in memory."""
    name = f"{dtype.kind}{8 * dtype.itemsize}"
    return "int" if name == "i32" else name


def integer(dtype: Any, pointer: str) -> str:
    """An integer of any dtype as a Word (uint64 keeps its bits)."""
    name = integer_type(dtype)
    return f"(Word)*(const {name}*)({pointer})"


def clamped(dtype: Any, x: str, limit: str) -> str:
    """An index clamped to 0..limit."""
    if dtype.kind == "u":
        return f"((u64){x} > (u64){limit} ? {limit} : {x})"
    return f"({x} < 0 ? 0 : {x} > {limit} ? {limit} : {x})"
