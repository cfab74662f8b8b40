"""Rules that several operations share, and rules that just call another function.

`eager = array_function("arcsin")` calls NumPy's function of that name, `eager =
raw_function(raw.erf)` one of `primitives.arrays`, `lower = kernel_function("asin")` one of the
kernel builder, and `taylor = frame_rule("waves")` a method of the caller (`primitives.taylor`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine.avals import Zero


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


def frame_rule(name: str) -> Any:
    """A `taylor`, `checked` or `sparse` rule: a method of the frame `f`."""

    def rule(self: Any, f: Any, *args: Any) -> Any:
        return getattr(f, name)(self, *args)

    return rule


def moves_with_operands(self: Any, f: Any, primals: Any, series: Any) -> tuple[Any, Any]:
    """A `taylor` rule: results of the operands' dtype vary with them, others are constant."""
    return (f.integrated if self.result is None else f.constant)(self, primals, series)


def itself(self: Any, *avals: Any) -> Any:
    """A `physical` rule: the operation itself also accepts the buffers behind keys."""
    return self


def mapped_in_place(self: Any, axis: Any, xs: Any, dims: Any) -> tuple[Any, Any]:
    """A `vmap` rule: the only operand may have any axes, and the result has them too."""
    return self(xs[0]), dims[0]


def no_derivative(self: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """A `jvp` rule: the tangent of the result is zero."""
    out = self(*primals)
    return out, Zero(out)
