"""Units of memory in CUDA text: up to 16 bytes that a thread moves at once.

If the pointers of a kernel are not aligned for its unit, each unit is moved in pieces.
"""

from __future__ import annotations

UNITS = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "uint4"}


def unit_type(unit: int, piece: int, type: str = "") -> str:
    """The type `Unit` of this many bytes, and functions that move one, in pieces if memory is not
    aligned to it.

    type: the type of a piece, by default an unsigned integer."""
    count = unit // piece
    slow = "Held h; "
    take = slow + "".join(f"h.p[{k}] = ((const Piece*)p)[{k}]; " for k in range(count))
    put = slow + "h.u = x; " + "".join(f"((Piece*)p)[{k}] = h.p[{k}]; " for k in range(count))
    return (
        f"typedef {UNITS[unit]} Unit;\ntypedef {type or UNITS[piece]} Piece;\n"
        f"union Held {{ Unit u; Piece p[{count}]; }};\n"
        "__device__ inline Unit take(const char* p, bool aligned) {\n"
        f"  if (aligned) return *(const Unit*)p;\n  {take}return h.u;\n}}\n"
        "__device__ inline void put(char* p, Unit x, bool aligned) {\n"
        f"  if (aligned) {{ *(Unit*)p = x; return; }}\n  {put}\n}}\n"
    )


def aligned(unit: int, *pointers: str) -> str:
    """Whether pointers are aligned to a unit."""
    bits = " | ".join(f"(Word){p}" for p in pointers)
    return f"(({bits}) & {unit - 1}) == 0"


def widest(piece: int, *numbers: int) -> int:
    """The largest unit, from a piece up to 16 bytes, that divides these numbers of bytes."""
    unit = piece
    while unit < 16 and all(n % (2 * unit) == 0 for n in numbers):
        unit *= 2
    return unit
