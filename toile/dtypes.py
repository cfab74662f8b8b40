"""Dtypes, their kinds, and the rules by which they are combined."""
# ruff: noqa: F401

import ml_dtypes as _ml_dtypes

from toile.engine.dtypes import (
    TypePromotionError,
    canonicalize_dtype,
    extended,
    finfo,
    float0,
    iinfo,
    issubdtype,
    itemsize_bits,
    prng_key,
    result_type,
    scalar_type_of,
)

bfloat16 = _ml_dtypes.bfloat16

__all__ = [name for name in globals() if name[0] != "_"]
