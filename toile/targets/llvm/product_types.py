"""Element types of matrix products: what arrays store, what sums are formed in, conversions.

Short floats are stored as such and computed in float32; conversions work on single values and on
vectors alike, and need no library calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from toile.targets.llvm.elements import from_bfloat, to_bfloat
from toile.targets.llvm.text import Function, typed


class Element(NamedTuple):
    """An element type: its kind is one of b (truth value), i, u, f, h (bfloat16)."""

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
    """How elements of `dtype` are stored; None for complex numbers and narrower types."""
    return _BY_NAME.get(np.dtype(dtype).name)


def work_element(dtype: Any) -> Element | None:
    """The type in which sums of products that give `dtype` are formed."""
    kind = element(dtype)
    if kind is None or kind in (FLOAT32, FLOAT64):
        return kind
    if kind.kind in "fh":
        return FLOAT32
    if kind.kind == "b":
        return TRUTH_WORK
    return INT64 if kind.size == 8 else INT32


def convert(f: Function, value: str, source: Element, target: Element, lanes: int = 1) -> str:
    """`value` as another type; narrowing integers wraps around."""
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
    if source.kind == "f" and target.kind != "f":  # whole numbers in range, by the type of sums
        word = INT64 if source.size == 8 else INT32
        whole = f.value(f"fptosi {a} {value} to {typed(word.llvm, lanes)}")
        return convert(f, whole, word, target, lanes)
    if source.kind != "f" and target.kind != "f" and source.size == target.size:
        return value
    return f.value(f"{_cast(source, target)} {a} {value} to {b}")


def _cast(source: Element, target: Element) -> str:
    """LLVM's instruction that makes one type the other."""
    signed = source.kind == "i"
    if target.kind == "f":
        if source.kind == "f":
            return "fpext" if target.size > source.size else "fptrunc"
        return "sitofp" if signed else "uitofp"
    if source.size > target.size:
        return "trunc"
    return "sext" if signed else "zext"


def plus(f: Function, kind: Element, a: str, b: str, lanes: int = 1) -> str:
    """a + b; `or` of truth values."""
    operation = {"f": "fadd", "b": "or"}.get(kind.kind, "add")
    return f.value(f"{operation} {typed(kind.llvm, lanes)} {a}, {b}")


def plus_product(f: Function, kind: Element, c: str, a: str, b: str, lanes: int = 1,
                 flags: str = "") -> str:
    """c + a b; for truth values, c or (a and b)."""
    t = typed(kind.llvm, lanes)
    if kind.kind == "f":
        if flags:  # a sum that the vectoriser may reorder
            return f.value(f"fadd {flags} {t} {c}, {f.value(f'fmul contract {t} {a}, {b}')}")
        return f.multiply_add(a, b, c, kind.llvm, lanes)
    if kind.kind == "b":
        return f.value(f"or {t} {c}, {f.value(f'and {t} {a}, {b}')}")
    return f.value(f"add {t} {c}, {f.value(f'mul {t} {a}, {b}')}")
