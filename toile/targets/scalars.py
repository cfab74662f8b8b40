"""What the scalar builders of all targets share: constants, and conversions between kinds.

A target prints single instructions; a narrow float is a rounded float32 in a register."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from toile.compiler.scalar.builder import (
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Dtype,
    Operand,
    Unsupported,
    Value,
    is_narrow,
    kind,
    part,
)
from toile.compiler.scalar.mathematics import Builder


def float_type(dtype: Dtype) -> str:
    """The type, in LLVM and C++, of a register that holds a float or a part of a complex number."""
    return "double" if FLOAT64 in (dtype, part(dtype) if kind(dtype) == "c" else dtype) else "float"


class TextBuilder(Builder):
    """A builder that prints text."""

    # ---- printed by targets
    @abstractmethod
    def float_text(self, value: Any, dtype: Dtype) -> str:
        """A float constant."""

    @abstractmethod
    def integer_text(self, value: int, dtype: Dtype) -> str:
        """An integer constant."""

    @abstractmethod
    def from_bits(self, word: Any, dtype: Dtype) -> Value:
        """A real number whose bits are in an argument."""

    @abstractmethod
    def call(self, name: str, *xs: Value) -> Value:
        """Call a function of floats of one dtype."""

    @abstractmethod
    def reinterpreted(self, x: Value, dtype: Dtype) -> Value:
        """The same bits as a dtype of the same width."""

    @abstractmethod
    def to_integer(self, x: Value, dtype: Dtype) -> Value:
        """A float truncated to an integer; saturates, and NaN becomes 0."""

    @abstractmethod
    def resized(self, x: Value, dtype: Dtype) -> Value:
        """An integer or boolean as an integer of another width, or either as a wide float."""

    @abstractmethod
    def narrowed(self, x: Value, dtype: Dtype) -> Value:
        """A float32 rounded to a narrow float, which stays in its float32 register."""

    # ---- shared by all targets
    def constant(self, value: Any, dtype: Dtype) -> Value:
        k = kind(dtype)
        if k == "c":
            re, im = (self.float_text(v, part(dtype)) for v in (np.real(value), np.imag(value)))
            return Value(re, dtype, im)
        if k == "b":
            return Value("true" if value else "false", dtype)
        text = self.float_text(value, dtype) if k == "f" else self.integer_text(int(value), dtype)
        return Value(text, dtype)

    def bits_argument(self, text: Any, dtype: Dtype, imag: Any = None) -> Value:
        if kind(dtype) != "c":
            return self.from_bits(text, dtype)
        to = part(dtype)
        return self.complex(self.from_bits(text, to), self.from_bits(imag, to))

    def fma(self, x: Operand, y: Operand, z: Operand) -> Value:
        return self.call("fma", *self.operands(x, y, z))

    def within(self, x: Value, low: float | None, high: float) -> Value:
        return self.minimum(x if low is None else self.maximum(x, low), high)

    def bitcast(self, x: Value, dtype: Dtype) -> Value:
        if x.dtype.itemsize != dtype.itemsize or "c" in kind(x.dtype) + kind(dtype):
            raise Unsupported(f"bits of {x.dtype} as {dtype}")
        return self.reinterpreted(x, dtype)

    def cast(self, x: Value, dtype: Dtype) -> Value:
        old, new = kind(x.dtype), kind(dtype)
        if new == "b":
            return x if old == "b" else self.ne(x, 0)
        if old == "f":
            return self._to_float(x, dtype) if new == "f" else self.to_integer(x, dtype)
        if new == "f" and is_narrow(dtype):
            return self._to_float(self.resized(x, FLOAT32), dtype)
        return self.resized(x, dtype)

    def _to_float(self, x: Value, dtype: Dtype) -> Value:
        """A float in another float dtype; narrow ones are rounded, in float32 registers."""
        if dtype == FLOAT64:
            return x if x.dtype == FLOAT64 else self.resized(x, dtype)
        if x.dtype == FLOAT64:
            y = self.resized(x, FLOAT32)
            x = self.to_odd(x, y) if dtype == FLOAT16 else y
        return self.narrowed(x, dtype) if is_narrow(dtype) else Value(x.name, dtype)
