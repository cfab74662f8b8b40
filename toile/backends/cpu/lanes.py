"""Vectors of NumPy's dtypes in LLVM text: loads, stores, combinations, comparisons, choices.

The counterpart of `elements` for kernels that write their vectors themselves. Short floats are
float32 in registers. A width of 1 stands for single numbers.
"""

from __future__ import annotations

from typing import Any

from toile.backends.cpu import elements
from toile.backends.cpu.ir import Function, typed
from toile.engine.records import dataclass


@dataclass(frozen=True)
class Lanes:
    """Vectors (or one number, where width is 1) of a dtype in text."""

    dtype: Any
    width: int

    def _typed(self, type: str) -> str:
        return typed(type, self.width)

    @property
    def type(self) -> str:
        """What registers hold; short floats are float32 there."""
        return self._typed(elements.work_type(self.dtype))

    @property
    def words(self) -> str:
        """32-bit integers, one for each lane."""
        return self._typed("i32")

    @property
    def truths(self) -> str:
        return self._typed("i1")

    def splat(self, value: str) -> str:
        """A constant in every lane."""
        if self.width == 1:
            return value
        scalar = elements.work_type(self.dtype)
        return "<" + ", ".join([f"{scalar} {value}"] * self.width) + ">"

    def at(self, f: Function, pointer: str, index: int | str) -> str:
        return f.offset(pointer, f.mul(index, self.dtype.itemsize))

    def load(self, f: Function, pointer: str) -> str:
        name, size = self.dtype.name, self.dtype.itemsize
        if name == "float16":
            raw = f.load(self._typed("half"), pointer, size)
            return f.value(f"fpext {self._typed('half')} {raw} to {self.type}")
        if name == "bfloat16":
            raw = f.load(self._typed("i16"), pointer, size)
            return elements.from_bfloat(f, raw, self.width)
        return f.load(self.type, pointer, size)

    def store(self, f: Function, value: str, pointer: str) -> None:
        name, size = self.dtype.name, self.dtype.itemsize
        if name == "float16":
            kind = self._typed("half")
            f.store(kind, f.value(f"fptrunc {self.type} {value} to {kind}"), pointer, size)
        elif name == "bfloat16":
            f.store(self._typed("i16"), elements.to_bfloat(f, value, self.width), pointer, size)
        else:
            f.store(self.type, value, pointer, size)

    def combine(self, f: Function, kind: str, a: str, b: str) -> str:
        """a `kind` b."""
        t, scalar = self.type, elements.work_type(self.dtype)
        floating = elements.is_float(self.dtype)
        if kind in ("add", "mul"):
            return f.value(f"{'f' if floating else ''}{kind} {t} {a}, {b}")
        suffix = {"float": "f32", "double": "f64"}.get(scalar, scalar)
        suffix = suffix if self.width == 1 else f"v{self.width}{suffix}"
        name = f"{kind}imum" if floating else ("s" if self.dtype.kind == "i" else "u") + kind
        return f.value(f"call {t} @llvm.{name}.{suffix}({t} {a}, {t} {b})")

    def keeps(self, f: Function, select: str, a: str, b: str) -> str:
        """Whether a >= b ("ge") or a <= b ("le"); never for NaN."""
        if elements.is_float(self.dtype):
            return f.value(f"fcmp o{select} {self.type} {a}, {b}")
        sign = "s" if self.dtype.kind == "i" else "u"
        return f.value(f"icmp {sign}{select} {self.type} {a}, {b}")

    def choose(self, f: Function, keep: str, a: str, b: str, type: str = "") -> str:
        kind = type or self.type
        return f.value(f"select {self.truths} {keep}, {kind} {a}, {kind} {b}")
