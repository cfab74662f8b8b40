"""Numbers of NumPy's dtypes as LLVM values: loads, stores and the combinations of reductions.

Short floats (bfloat16, float16) lie in memory as 16 bits and are float32 in registers; booleans
are bytes of 0 and 1. What is not `supported` runs by its eager rule.
"""

from __future__ import annotations

from typing import Any

from toile.backends.cpu import ir
from toile.compiler.element_types import FLOATS as FLOATS
from toile.compiler.element_types import is_float as is_float
from toile.compiler.element_types import is_short as is_short
from toile.compiler.element_types import supported as supported


def work_type(dtype: Any) -> str:
    """The LLVM type of a number in registers."""
    return FLOATS.get(dtype.name) or f"i{8 * dtype.itemsize}"


def load(f: ir.Function, dtype: Any, pointer: str) -> str:
    """The number at an address."""
    if not is_short(dtype):
        return f.load(work_type(dtype), pointer, dtype.itemsize)
    if dtype.name == "float16":
        return f.value(f"fpext half {f.load('half', pointer, 2)} to float")
    return from_bfloat(f, f.load("i16", pointer, 2))


def store(f: ir.Function, dtype: Any, value: str, pointer: str) -> None:
    """Put a number at an address, rounded to nearest, ties to even."""
    if not is_short(dtype):
        f.store(work_type(dtype), value, pointer, dtype.itemsize)
    elif dtype.name == "float16":
        f.store("half", f.value(f"fptrunc float {value} to half"), pointer, 2)
    else:
        f.store("i16", to_bfloat(f, value), pointer, 2)


def from_bfloat(f: ir.Function, value: str, lanes: int = 1) -> str:
    """The float32 whose upper half is given, one or a vector of them."""
    short, word, wide = ir.typed("i16", lanes), ir.typed("i32", lanes), ir.typed("float", lanes)
    bits = f.value(f"zext {short} {value} to {word}")
    bits = f.value(f"shl {word} {bits}, {ir.constant(16, lanes)}")
    return f.value(f"bitcast {word} {bits} to {wide}")


def to_bfloat(f: ir.Function, value: str, lanes: int = 1) -> str:
    """The upper half of float32, rounded to nearest, ties to even; a NaN stays one (quiet)."""
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


def combine(f: ir.Function, kind: str, dtype: Any, a: str, b: str, type: str = "") -> str:
    """a `kind` b in registers; kind: add, sub, mul, min, max, the last two passing NaN on."""
    if is_float(dtype):
        type = type or work_type(dtype)
        if kind in ("min", "max"):
            suffix = "f64" if type == "double" else "f32"
            return f.value(f"call {type} @llvm.{kind}imum.{suffix}({type} {a}, {type} {b})")
        return f.value(f"f{kind} {type} {a}, {b}")
    type = work_type(dtype)
    if dtype.kind == "b":  # sum and maximum are `or`, product and minimum `and`
        return f.value(f"{'or' if kind in ('add', 'max') else 'and'} {type} {a}, {b}")
    if kind in ("min", "max"):
        name = f"llvm.{'s' if dtype.kind == 'i' else 'u'}{kind}.{type}"
        return f.value(f"call {type} @{name}({type} {a}, {type} {b})")
    return f.value(f"{kind} {type} {a}, {b}")
