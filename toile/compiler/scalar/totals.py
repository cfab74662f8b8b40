"""Reductions: the dtype of the accumulator, its initial value, and one step."""

from __future__ import annotations

import numpy as np

from toile.compiler.scalar.builder import FLOAT32, Arithmetic, Value, is_narrow, kind


def accumulator(dtype: np.dtype) -> np.dtype:
    """The dtype that partial sums are kept in."""
    return FLOAT32 if is_narrow(dtype) else dtype


def identity(kind_: str, dtype: np.dtype) -> object:
    """The neutral element of a reduction."""
    if kind_ in ("reduce_sum", "reduce_or", "reduce_xor"):
        return -0.0 if kind(dtype) in "fc" else 0
    if kind_ == "reduce_prod":
        return 1
    if kind_ == "reduce_and":
        return 1 if kind(dtype) == "b" else (-1 if kind(dtype) == "i" else np.iinfo(dtype).max)
    low = kind_ == "reduce_max"
    if kind(dtype) == "f":
        return float("-inf") if low else float("inf")
    if kind(dtype) == "b":
        return 0 if low else 1
    return np.iinfo(dtype).min if low else np.iinfo(dtype).max


def first_total(k: Arithmetic, kind_: str, dtype: np.dtype) -> Value:
    """The initial value of a reduction."""
    return k.constant(identity(kind_, dtype), dtype)


def combine(k: Arithmetic, kind_: str, total: Value, x: Value) -> Value:
    """One step of a reduction."""
    step = {"reduce_sum": k.add, "reduce_prod": k.mul, "reduce_max": k.maximum,
            "reduce_min": k.minimum, "reduce_and": k.and_, "reduce_or": k.or_,
            "reduce_xor": k.xor}[kind_]
    return step(total, x)
