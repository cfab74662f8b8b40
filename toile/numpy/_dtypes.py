"""Sets of dtypes, and conversions between integer, float and complex dtypes.

This module may import the engine and `lax`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.promotion import COMPLEXES, FLOATS, SIGNED, UNSIGNED
from toile.lax._operands import user_dtype as user_dtype

BOOL = np.dtype(bool)
INEXACT = frozenset((*FLOATS, *COMPLEXES))
FLOATING = frozenset(FLOATS)
COMPLEX = frozenset(COMPLEXES)
INTEGERS = frozenset((*SIGNED, *UNSIGNED))
UNSIGNED_INTEGERS = frozenset(UNSIGNED)
HALVES = frozenset(d for d in FLOATS if d.itemsize <= 2)

default_float = dtypes.default_float_dtype
default_int = dtypes.default_int_dtype
TO_INEXACT = {d: dtypes.to_inexact_dtype(d) for d in (BOOL, *SIGNED, *UNSIGNED)}
INT32 = np.dtype("int32")


def to_inexact(dtype: Any) -> Any:
    """Return a floating or complex dtype unchanged, float64 for 64-bit integers, else float32."""
    return TO_INEXACT.get(dtype, dtype)


def real_part(dtype: Any) -> Any:
    """Return the float dtype of the parts of a complex dtype, and any other dtype unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype in COMPLEX else dtype
