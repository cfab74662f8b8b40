"""Numbers of NumPy's dtypes in CUDA text: memory and register types, conversions, combinations.

16-bit floats (bfloat16, float16) are 16 bits in memory and float32 in registers; booleans are bytes
of 0 and 1. Sums of integers wrap around: they are computed as unsigned numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.compiler.ir.element_types import FLOATS as FLOATS
from toile.compiler.ir.element_types import is_float as is_float
from toile.compiler.ir.element_types import is_short as is_short
from toile.compiler.ir.element_types import real_part as real_part
from toile.compiler.ir.element_types import supported as supported
from toile.primitives.arrays.windows import identity
from toile.targets.cuda.scalars import HELPERS
from toile.targets.cuda.text import integer_type

_SHORT = {"float16": "half", "bfloat16": "bf16"}


def memory_type(dtype: Any) -> str:
    if is_short(dtype):
        return "u16"
    return FLOATS.get(dtype.name) or ("u8" if dtype.kind == "b" else integer_type(dtype))


def work_type(dtype: Any) -> str:
    """The type of a number in registers."""
    return FLOATS.get(dtype.name) or memory_type(dtype)


def widened(dtype: Any) -> Any:
    """The accumulator dtype: float32 for shorter floats, otherwise the dtype itself."""
    return np.dtype(np.float32) if is_short(dtype) else dtype


def conversions(*given: Any) -> str:
    """The functions that convert these dtypes."""
    names = {d.name for d in given}
    return "".join(HELPERS[f"{way}_{short}"] for name, short in _SHORT.items() if name in names
                   for way in ("from", "to"))


def load(dtype: Any, x: str) -> str:
    """A number in a register, from its form in memory."""
    return f"from_{_SHORT[dtype.name]}({x})" if is_short(dtype) else x


def store(dtype: Any, x: str) -> str:
    """The form of a number in memory, rounded to nearest, ties to even."""
    return (f"to_{_SHORT[dtype.name]}({x})" if is_short(dtype)
            else f"({memory_type(dtype)})({x})")


def combine_function(kind: str, dtype: Any, type: str = "", name: str = "combine") -> str:
    """`type combine(a, b)` in registers; kind: add, sub, mul, and, or, min, max, which keep NaN."""
    type = type or work_type(dtype)
    head = f"__device__ inline {type} {name}({type} a, {type} b) {{ "
    if is_float(dtype):
        if kind in ("min", "max"):
            suffix = "f" if type == "float" else ""
            return head + f"return a != a || b != b ? a + b : f{kind}{suffix}(a, b); }}\n"
        return head + f"return a {_SIGNS[kind]} b; }}\n"
    if dtype.kind == "b":  # sum and maximum are `or`, product and minimum are `and`
        return head + f"return a {'|' if kind in ('add', 'max', 'or') else '&'} b; }}\n"
    if kind in ("min", "max"):
        return head + f"return a {'<' if kind == 'min' else '>'} b ? a : b; }}\n"
    wide = "u64" if dtype.itemsize == 8 else "u32"
    return head + f"return ({type})(({wide})a {_SIGNS[kind]} ({wide})b); }}\n"


_SIGNS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|"}


def literal(value: Any, dtype: Any, type: str = "") -> str:
    """A number as text; floats by their bits."""
    type = type or work_type(dtype)
    if type == "float":
        return f"__int_as_float({int(np.float32(value).view(np.int32))})"
    if type == "double":
        bits = int(np.float64(value).view(np.int64))
        return f"__longlong_as_double((i64){bits & 2**64 - 1:#x}ull)"
    return f"({type}){int(value) & 2**64 - 1:#x}ull"


def neutral(kind: str, dtype: Any, type: str = "") -> str:
    """The neutral element of a combination, as text."""
    return literal(identity("add" if kind == "sub" else kind, dtype), dtype, type)


_WORK = {"float": "f4", "double": "f8", "int": "i4"}


def dtype_of(work: str) -> Any:
    """A dtype whose numbers have the register type `work`."""
    return np.dtype(_WORK.get(work) or f"{work[0]}{int(work[1:]) // 8}")
