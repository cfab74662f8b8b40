"""Element types of matrix products: types in memory, types of sums, and conversions.

Products of 16-bit floats are computed in float32. Conversions work on single values and on vectors,
and call no library.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from toile.targets.llvm.elements import from_bfloat, to_bfloat
from toile.targets.llvm.text import Function, typed


class Element(NamedTuple):
    """An element type; `kind` is b (truth value), i, u, f or h (bfloat16)."""

    llvm: str
    size: int
    kind: str

    @property
    def zero(self) -> str:
        return "0" if self.llvm.startswith("i") else "0.0"


FLOAT32, FLOAT64 = Element("float", 4, "f"), Element("double", 8, "f")
INT32, INT64 = Element("i32", 4, "i"), Element("i64", 8, "i")
TRUTH = Element("i8", 1, "b")
TRUTH_WORK = Element("i32", 4, "b")
_BY_NAME = {
    "bool": TRUTH,
    "bfloat16": Element("i16", 2, "h"),
    "float16": Element("half", 2, "f"),
    "float32": FLOAT32,
    "float64": FLOAT64,
    **{f"int{8 * n}": Element(f"i{8 * n}", n, "i") for n in (1, 2, 4, 8)},
    **{f"uint{8 * n}": Element(f"i{8 * n}", n, "u") for n in (1, 2, 4, 8)},
}


@cache
def element(dtype: Any) -> Element | None:
    """How elements of `dtype` are stored; None for complex numbers, float8 and narrower types."""
    return _BY_NAME.get(np.dtype(dtype).name)


def work_element(dtype: Any) -> Element | None:
    """The type in which products with results of `dtype` are summed."""
    kind = element(dtype)
    if kind is None or kind in (FLOAT32, FLOAT64):
        return kind
    if kind.kind in "fh":
        return FLOAT32
    if kind.kind == "b":
        return TRUTH_WORK
    return INT64 if kind.size == 8 else INT32


def convert(f: Function, value: str, source: Element, target: Element, lanes: int = 1) -> str:
    """`value` converted to another type; narrowed integers wrap around."""
    if source == target:
        return value
    if source.kind == "h":
        return convert(f, from_bfloat(f, value, lanes), FLOAT32, target, lanes)
    if target.kind == "h":
        return to_bfloat(f, convert(f, value, source, FLOAT32, lanes), lanes)
    a, b = typed(source.llvm, lanes), typed(target.llvm, lanes)
    if target == TRUTH:  # truth values are stored as 0 and 1
        zero = "zeroinitializer" if lanes > 1 else source.zero
        test = "fcmp une" if source.kind == "f" else "icmp ne"
        nonzero = f.value(f"{test} {a} {value}, {zero}")
        return f.value(f"zext {typed('i1', lanes)} {nonzero} to {b}")
    if source.kind == "f" and target.kind != "f":  # integers that were summed in floats: in range
        word = INT64 if source.size == 8 else INT32
        whole = f.value(f"fptosi {a} {value} to {typed(word.llvm, lanes)}")
        return convert(f, whole, word, target, lanes)
    if source.kind != "f" and target.kind != "f" and source.size == target.size:
        return value
    return f.value(f"{_cast(source, target)} {a} {value} to {b}")


def _cast(source: Element, target: Element) -> str:
    """The LLVM instruction that converts one type to the other."""
    signed = source.kind == "i"
    if target.kind == "f":
        if source.kind == "f":
            return "fpext" if target.size > source.size else "fptrunc"
        return "sitofp" if signed else "uitofp"
    if source.size > target.size:
        return "trunc"
    return "sext" if signed else "zext"


def plus(f: Function, kind: Element, a: str, b: str, lanes: int = 1) -> str:
    """a + b; for truth values, a or b."""
    operation = {"f": "fadd", "b": "or"}.get(kind.kind, "add")
    return f.value(f"{operation} {typed(kind.llvm, lanes)} {a}, {b}")


def plus_product(f: Function, kind: Element, c: str, a: str, b: str, lanes: int = 1,
                 flags: str = "") -> str:
    """c + a b; for truth values, c or (a and b)."""
    t = typed(kind.llvm, lanes)
    if kind.kind == "f":
        if flags:  # a sum that the vectorizer may reorder
            return f.value(f"fadd {flags} {t} {c}, {f.value(f'fmul contract {t} {a}, {b}')}")
        return f.multiply_add(a, b, c, kind.llvm, lanes)
    if kind.kind == "b":
        return f.value(f"or {t} {c}, {f.value(f'and {t} {a}, {b}')}")
    return f.value(f"add {t} {c}, {f.value(f'mul {t} {a}, {b}')}")
