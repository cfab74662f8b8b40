"""Register tiles of the products inside convolutions, and vectors of floats in LLVM text.

A tile is `rows` x (`vectors` of `lanes`) sums held in registers. On ARM a multiply-add takes a lane
of a vector as its scalar, so rows are read a vector at a time; on x86 each scalar is broadcast
from memory.
"""

from __future__ import annotations

from typing import NamedTuple

from toile.targets.llvm import native, text
from toile.targets.llvm.text import Function, Operand, constant


class Tile(NamedTuple):
    """The shape of a register tile and the type of its elements."""

    rows: int
    vectors: int
    lanes: int
    type: str
    by_lane: bool

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def itemsize(self) -> int:
        return 4 if self.type == "float" else 8

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.type}>"


# Rows and vectors of a tile by bytes of a vector. Indirect (rows read through pointers): for many
# columns, and for a single vector of them. Outer (packed rows): for many rows, and for few.
_INDIRECT = {16: ((8, 2), (12, 1)), 32: ((6, 2), (10, 1)), 64: ((12, 2), (20, 1))}
_OUTER = {16: ((8, 2), (4, 4)), 32: ((6, 2), (3, 3)), 64: ((12, 2), (4, 6))}


def indirect_tile(type: str, columns: int) -> Tile:
    """The tile for rows at arbitrary addresses."""
    width = native.vector_bytes()
    lanes = width // (4 if type == "float" else 8)
    many, few = _INDIRECT[width]
    return Tile(*(few if columns <= lanes else many), lanes, type, width == 16)


def outer_tile(type: str, rows: int) -> Tile:
    """The tile for packed rows."""
    width = native.vector_bytes()
    many, few = _OUTER[width]
    tile = few if rows <= few[0] else many
    return Tile(*tile, width // (4 if type == "float" else 8), type, width == 16)


def kernel() -> Function:
    """A kernel whose loops run tiles and packing: unrolling them would only cost compile time."""
    return text.kernel("nounwind optsize")


# ---- vectors
def load(f: Function, t: Tile, pointer: str, index: Operand = 0) -> str:
    """A vector from element `index` on."""
    return f.load(t.vector, f.at(pointer, index, t.type), t.itemsize)


def store(f: Function, t: Tile, value: str, pointer: str, index: Operand = 0) -> None:
    f.store(t.vector, value, f.at(pointer, index, t.type), t.itemsize)


def splat_lane(f: Function, t: Tile, vector: str, lane: int) -> str:
    """A vector filled with one lane of another."""
    return _shuffle(f, t, vector, "poison", constant(lane, t.lanes))


def splat(f: Function, t: Tile, scalar: str) -> str:
    """A vector filled with a scalar."""
    first = f.value(f"insertelement {t.vector} poison, {t.type} {scalar}, i64 0")
    return splat_lane(f, t, first, 0)


def fma(f: Function, t: Tile, a: str, b: str, c: str) -> str:
    """a*b + c."""
    return f.multiply_add(a, b, c, t.type, t.lanes)


def sums(f: Function, t: Tile) -> list[list[str]]:
    """Slots for the sums of a tile, set to zero."""
    slots = [[f.alloca(t.vector) for _ in range(t.vectors)] for _ in range(t.rows)]
    for row in slots:
        for slot in row:
            f.store(t.vector, "zeroinitializer", slot)
    return slots


def store_row(f: Function, t: Tile, slots: list[str], pointer: str, index: int = 0) -> None:
    """Store one row of sums, from element `index` on."""
    for v, slot in enumerate(slots):
        store(f, t, f.load(t.vector, slot), pointer, index + v * t.lanes)


def accumulate(f: Function, t: Tile, slots: list[str], scalar: str, columns: list[str]) -> None:
    """One row of sums += scalar (already a vector) * columns."""
    for slot, b in zip(slots, columns, strict=True):
        f.store(t.vector, fma(f, t, scalar, b, f.load(t.vector, slot)), slot)


def transposed(f: Function, t: Tile, rows: list[str]) -> list[str]:
    """Transpose a square of vectors by exchanging blocks of half the size at each step."""
    half, out = t.lanes // 2, list(rows)
    while half:
        low, high = ("<" + ", ".join(f"i32 {i}" for i in picks) + ">" for picks in (
            [i + (t.lanes - half if i & half else 0) for i in range(t.lanes)],
            [i + half + (t.lanes - half if i & half else 0) for i in range(t.lanes)]))
        for i in range(t.lanes):
            if i & half == 0:
                a, b = out[i], out[i + half]
                out[i], out[i + half] = _shuffle(f, t, a, b, low), _shuffle(f, t, a, b, high)
        half //= 2
    return out


def _shuffle(f: Function, t: Tile, a: str, b: str, mask: str) -> str:
    return f.value(f"shufflevector {t.vector} {a}, {t.vector} {b}, <{t.lanes} x i32> {mask}")
