"""Numbers of NumPy's dtypes as LLVM values: loads, stores and the combinations of reductions.

Short floats (bfloat16, float16) lie in memory as 16 bits and are float32 in registers; booleans
are bytes of 0 and 1. What is not `supported` runs by its eager rule.
"""

from __future__ import annotations

from typing import Any

from toile.backends.cpu import ir
from toile.engine import dtypes

_FLOATS = {"float32": "float", "float64": "double", "float16": "float", "bfloat16": "float"}


def supported(dtype: Any) -> bool:
    """Whether kernels can calculate with a dtype: bool, integers of whole bytes, four floats."""
    if dtypes.is_extended(dtype):
        return False
    return dtype.kind in "biu" or dtype.name in _FLOATS


def is_float(dtype: Any) -> bool:
    return dtype.name in _FLOATS


def is_short(dtype: Any) -> bool:
    """Whether a float is held in 16 bits."""
    return dtype.name in ("float16", "bfloat16")


def work_type(dtype: Any) -> str:
    """The LLVM type of a number in registers."""
    return _FLOATS.get(dtype.name) or f"i{8 * dtype.itemsize}"


def load(f: ir.Function, dtype: Any, pointer: str) -> str:
    """The number at an address."""
    if not is_short(dtype):
        return f.load(work_type(dtype), pointer, dtype.itemsize)
    if dtype.name == "float16":
        return f.value(f"fpext half {f.load('half', pointer, 2)} to float")
    wide = f.value(f"zext i16 {f.load('i16', pointer, 2)} to i32")
    return f.value(f"bitcast i32 {f.value(f'shl i32 {wide}, 16')} to float")


def store(f: ir.Function, dtype: Any, value: str, pointer: str) -> None:
    """Put a number at an address, rounded to nearest, ties to even."""
    if not is_short(dtype):
        f.store(work_type(dtype), value, pointer, dtype.itemsize)
    elif dtype.name == "float16":
        f.store("half", f.value(f"fptrunc float {value} to half"), pointer, 2)
    else:
        f.store("i16", _bfloat16(f, value), pointer, 2)


def _bfloat16(f: ir.Function, value: str) -> str:
    """The upper half of a float32 after rounding; a NaN stays one."""
    bits = f.value(f"bitcast float {value} to i32")
    odd = f.value(f"and i32 {f.value(f'lshr i32 {bits}, 16')}, 1")
    up = f.value(f"add i32 {bits}, {f.value(f'add i32 {odd}, 32767')}")
    quiet = f.value(f"or i32 {bits}, 4194304")
    nan = f.value(f"fcmp uno float {value}, {value}")
    rounded = f.select(nan, quiet, up, "i32")
    return f.value(f"trunc i32 {f.value(f'lshr i32 {rounded}, 16')} to i16")


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
