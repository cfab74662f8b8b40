"""The dtypes that library kernels compute with, and the float types of their registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine import dtypes

# The name in C and LLVM of the float type of the register
FLOATS = {"float32": "float", "float64": "double", "float16": "float", "bfloat16": "float"}


def supported(dtype: Any) -> bool:
    """Whether kernels can compute with a dtype: bool, integers of 8 bits or more, and four
    floating-point dtypes."""
    if dtypes.is_extended(dtype):
        return False
    return dtype.kind in "biu" or dtype.name in FLOATS


def real_part(dtype: Any) -> Any:
    """The dtype of a complex number's parts; a real dtype is returned unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def is_float(dtype: Any) -> bool:
    """Whether a dtype is one of the four float dtypes."""
    return dtype.name in FLOATS


def is_short(dtype: Any) -> bool:
    """Whether a float is held in 16 bits."""
    return dtype.name in ("float16", "bfloat16")
