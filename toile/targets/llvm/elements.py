"""Numbers of NumPy's dtypes, and vectors of them, as LLVM values: loads, stores, combinations.

16-bit floats (bfloat16, float16) are 16 bits in memory and float32 in registers; booleans are bytes
of 0 and 1. Dtypes that are not `supported` are left to eager rules. `Lanes` is for kernels that
write vector code themselves.
"""

from __future__ import annotations

from typing import Any

from toile.compiler.ir.element_types import FLOATS as FLOATS
from toile.compiler.ir.element_types import is_float as is_float
from toile.compiler.ir.element_types import is_short as is_short
from toile.compiler.ir.element_types import supported as supported
from toile.engine.records import dataclass
from toile.targets.llvm import text as ir


def work_type(dtype: Any) -> str:
    """The LLVM type of a number in registers."""
    return FLOATS.get(dtype.name) or f"i{8 * dtype.itemsize}"


def load(f: ir.Function, dtype: Any, pointer: str, lanes: int = 1) -> str:
    """Load the number at an address, or a vector of the numbers from there on."""
    if not is_short(dtype):
        return f.load(ir.typed(work_type(dtype), lanes), pointer, dtype.itemsize)
    stored = ir.typed("half" if dtype.name == "float16" else "i16", lanes)
    raw = f.load(stored, pointer, 2)
    if dtype.name == "float16":
        return f.value(f"fpext {stored} {raw} to {ir.typed('float', lanes)}")
    return from_bfloat(f, raw, lanes)


def store(f: ir.Function, dtype: Any, value: str, pointer: str, lanes: int = 1) -> None:
    """Store a number, or a vector of them, at an address, rounded to nearest, ties to even."""
    stored = ir.typed(work_type(dtype), lanes)
    if dtype.name == "float16":
        wide, stored = stored, ir.typed("half", lanes)
        value = f.value(f"fptrunc {wide} {value} to {stored}")
    elif is_short(dtype):
        value, stored = to_bfloat(f, value, lanes), ir.typed("i16", lanes)
    f.store(stored, value, pointer, dtype.itemsize)


def from_bfloat(f: ir.Function, value: str, lanes: int = 1) -> str:
    """The float32 whose upper half is given (the lower half is 0), or a vector of them."""
    short, word, wide = ir.typed("i16", lanes), ir.typed("i32", lanes), ir.typed("float", lanes)
    bits = f.value(f"zext {short} {value} to {word}")
    bits = f.value(f"shl {word} {bits}, {ir.constant(16, lanes)}")
    return f.value(f"bitcast {word} {bits} to {wide}")


def to_bfloat(f: ir.Function, value: str, lanes: int = 1) -> str:
    """The upper half of a float32, rounded to nearest, ties to even; a NaN becomes a quiet NaN."""
    short, word, wide = ir.typed("i16", lanes), ir.typed("i32", lanes), ir.typed("float", lanes)
    bits = f.value(f"bitcast {wide} {value} to {word}")
    high = f.value(f"lshr {word} {bits}, {ir.constant(16, lanes)}")
    odd = f.value(f"and {word} {high}, {ir.constant(1, lanes)}")
    half = f.value(f"add {word} {odd}, {ir.constant(0x7FFF, lanes)}")
    rounded = f.value(f"add {word} {bits}, {half}")
    rounded = f.value(f"lshr {word} {rounded}, {ir.constant(16, lanes)}")
    quiet = f.value(f"or {word} {high}, {ir.constant(0x40, lanes)}")
    nan = f.value(f"fcmp uno {wide} {value}, {value}")
    picked = f.value(f"select {ir.typed('i1', lanes)} {nan}, {word} {quiet}, {word} {rounded}")
    return f.value(f"trunc {word} {picked} to {short}")


def combine(
    f: ir.Function, kind: str, dtype: Any, a: str, b: str, work: str = "", lanes: int = 1
) -> str:
    """a `kind` b in registers; kind: add, sub, mul, and, or, min, max, which propagate NaN."""
    scalar = work or work_type(dtype)
    type = ir.typed(scalar, lanes)
    if dtype.kind == "b":  # sum and maximum are `or`, product and minimum `and`
        return f.value(f"{'or' if kind in ('add', 'max', 'or') else 'and'} {type} {a}, {b}")
    if kind not in ("min", "max"):
        return f.value(f"{'f' if is_float(dtype) else ''}{kind} {type} {a}, {b}")
    name = f"{kind}imum" if is_float(dtype) else ("s" if dtype.kind == "i" else "u") + kind
    suffix = {"float": "f32", "double": "f64"}.get(scalar, scalar)
    suffix = suffix if lanes == 1 else f"v{lanes}{suffix}"
    return f.value(f"call {type} @llvm.{name}.{suffix}({type} {a}, {type} {b})")


@dataclass(frozen=True)
class Lanes:
    """Writes the text of operations on vectors of a dtype (on single numbers if width is 1)."""

    dtype: Any
    width: int

    @property
    def type(self) -> str:
        """The type of registers; 16-bit floats are float32 there."""
        return ir.typed(work_type(self.dtype), self.width)

    @property
    def words(self) -> str:
        """The type of 32-bit integers, one for each lane."""
        return ir.typed("i32", self.width)

    @property
    def truths(self) -> str:
        return ir.typed("i1", self.width)

    def splat(self, value: str) -> str:
        """A constant in every lane."""
        return ir.constant(value, self.width, work_type(self.dtype))

    def at(self, f: ir.Function, pointer: str, index: int | str) -> str:
        return f.offset(pointer, f.mul(index, self.dtype.itemsize))

    def load(self, f: ir.Function, pointer: str) -> str:
        return load(f, self.dtype, pointer, self.width)

    def store(self, f: ir.Function, value: str, pointer: str) -> None:
        store(f, self.dtype, value, pointer, self.width)

    def combine(self, f: ir.Function, kind: str, a: str, b: str) -> str:
        """a `kind` b."""
        return combine(f, kind, self.dtype, a, b, lanes=self.width)

    def keeps(self, f: ir.Function, select: str, a: str, b: str) -> str:
        """Whether a >= b ("ge") or a <= b ("le"); false if one is NaN."""
        if is_float(self.dtype):
            return f.value(f"fcmp o{select} {self.type} {a}, {b}")
        sign = "s" if self.dtype.kind == "i" else "u"
        return f.value(f"icmp {sign}{select} {self.type} {a}, {b}")

    def choose(self, f: ir.Function, keep: str, a: str, b: str, type: str = "") -> str:
        kind = type or self.type
        return f.value(f"select {self.truths} {keep}, {kind} {a}, {kind} {b}")


def transposed(f: ir.Function, rows: list[str], type: str) -> list[str]:
    """The columns of a square block of n rows, each a vector of `type`; n is a power of two.

    Interleaving row i with row i + n/2, for all i, rotates the bits of (row, column) by one:
    log2(n) rounds exchange rows and columns."""
    n = len(rows)
    half = n // 2
    masks = [", ".join(f"i32 {k}, i32 {n + k}" for k in range(low, low + half))
             for low in (0, half)]
    for _ in range(n.bit_length() - 1):
        rows = [f.value(f"shufflevector {type} {rows[i]}, {type} {rows[i + half]}, "
                        f"<{n} x i32> <{mask}>")
                for i in range(half) for mask in masks]
    return rows
