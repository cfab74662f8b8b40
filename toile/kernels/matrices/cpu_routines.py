"""What kernels that call routines of LAPACK and BLAS share."""

from __future__ import annotations

import numpy as np

from toile.compiler.ir.operands import Operand
from toile.kernels.contraction import cpu_blas as blas
from toile.targets.llvm import native
from toile.targets.llvm import text as ir

_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}
_FLOPS = 2.0  # per nanosecond
TYPES = {"s": ("float", 4, "0x7FF8000000000000"), "d": ("double", 8, "0x7FF8000000000000")}


def letter_of(x: Operand, *routines: str) -> str | None:
    """The first letter of the routines for a dtype; None if one of them is missing."""
    letter = _LETTERS.get(x.dtype)
    if letter is None or any(blas.symbol(letter + r) is None for r in routines):
        return None
    return letter


def name_of(letter: str, routine: str) -> str:
    found = blas.symbol(letter + routine)
    assert found is not None
    return found


class Fortran:
    """Arguments of Fortran routines, which are addresses."""

    def __init__(self, f: ir.Function):
        self.f = f

    def word(self, value: str) -> str:
        """The address of a 32-bit copy of an integer."""
        return self.f.variable("i32", self.f.value(f"trunc i64 {value} to i32"))

    def letter(self, value: str) -> str:
        """The address of a letter."""
        return self.f.variable("i8", ord(value))

    def call(self, name: str, *pointers: str) -> None:
        """Call a routine."""
        self.f.do(f"call void @{name}({', '.join(f'ptr {p}' for p in pointers)})")


def module(f: ir.Function, **routines: int) -> str:
    """The text of a kernel that calls routines, each given with its number of arguments."""
    declared = [f"declare void @{name}({', '.join(['ptr'] * count)})\n"
                for name, count in routines.items()]
    return native.WRITTEN_OUT + "".join(declared) + ir.module(f)


def is_finite(f: ir.Function, type: str, a: str, count: str) -> str:
    """Whether all `count` numbers at an address are finite."""
    total = f.variable(type, "0.0")
    with f.loop(0, count) as i:
        x = f.load(type, f.at(a, i, type))
        zero = f.value(f"fsub {type} {x}, {x}")  # NaN for infinities and NaN
        f.store(type, f.value(f"fadd {type} {f.load(type, total)}, {zero}"), total)
    return f.value(f"fcmp oeq {type} {f.load(type, total)}, 0.0")


def filled(f: ir.Function, type: str, nan: str, *arrays: tuple[str, str]) -> None:
    """Fill arrays, given by address and number of elements, with NaN."""
    for a, count in arrays:
        with f.loop(0, count) as i:
            f.store(type, nan, f.at(a, i, type))


def chunks_of(units: int, threads: int) -> tuple[int, int]:
    """Units of a chunk, and the number of chunks, each of which has its own workspace."""
    grain = max(1, -(-units // (4 * threads)))
    return grain, -(-units // grain)


def cost_of(flops: float) -> float:
    """The nanoseconds of a call."""
    return 500.0 + flops / _FLOPS
