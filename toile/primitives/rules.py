"""Rules of elementwise operations that are one function of somebody else.

`eager = array_function("arcsin")` is NumPy's function of that name, `eager = raw_function(raw.erf)`
one of `primitives.arrays`, and `lower = kernel_function("asin")` one of the kernel builder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def array_function(name: str) -> Any:
    """An `eager` rule of one operand: a function of the array module."""
    of_numpy = getattr(np, name)

    def eager(self: Any, xp: Any, x: Any) -> Any:
        return of_numpy(x) if xp is np else getattr(xp, name)(x)

    return eager


def raw_function(function: Callable[..., Any]) -> Any:
    """An `eager` rule: a function of the array module and the operands."""

    def eager(self: Any, xp: Any, *xs: Any) -> Any:
        return function(xp, *xs)

    return eager


def kernel_function(name: str) -> Any:
    """A `lower` rule: a function of the kernel builder."""

    def lower(self: Any, k: Any, *xs: Any) -> Any:
        return getattr(k, name)(*xs)

    return lower
