"""The dtype of scales that are used several times: cotangents join by their maximum, not sum.

A scale whose "gradient" is its new value must not be summed over its uses, as in a scan. Arrays of
this dtype are floats for which autodiff takes the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from toile.engine import dtypes


class Fp8MetaTyRules:
    """How such a dtype converts and accumulates: it is its float dtype, joined by maximum."""

    @staticmethod
    def convert_from(fp8_meta_dtype: Any, other_dtype: Any) -> bool:
        """Whether such numbers convert to a dtype."""
        return fp8_meta_dtype.float_dtype == other_dtype

    @staticmethod
    def convert_to(other_dtype: Any, fp8_meta_dtype: Any) -> bool:
        """Whether a dtype converts to such numbers."""
        return fp8_meta_dtype.float_dtype == other_dtype


class fp8_meta_dtype(dtypes.extended):
    """Abstract scalar type of these dtypes, for `issubdtype`."""


@dataclass(frozen=True)
class fp8_meta_dtype_wrapper(dtypes.ExtendedDType):
    """The dtype over one float dtype."""

    float_dtype: Any
    type = fp8_meta_dtype

    def __repr__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        return f"fp8_meta{dtypes.finfo(self.float_dtype).bits}"

    @property
    def itemsize(self) -> int:
        return np.dtype(self.float_dtype).itemsize


fm32 = fp8_meta_dtype_wrapper(np.dtype(np.float32))
fp32_max_grad = fp8_meta_dtype_wrapper(np.dtype(np.float32))
