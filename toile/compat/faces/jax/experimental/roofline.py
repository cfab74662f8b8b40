"""`jax.experimental.roofline`: the floating-point operations of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toile import eval_shape, jit

__all__ = ["RooflineResult", "roofline"]


@dataclass(frozen=True)
class RooflineResult:
    """The cost of a function; unlike JAX, without bytes and without parts on several devices."""

    unfused_flops: int


def roofline(f: Callable[..., Any]) -> Callable[..., tuple[Any, RooflineResult]]:
    """A function that returns the shapes of the results of `f`, and what they cost to compute."""

    @functools.wraps(f)
    def measured(*args: Any) -> tuple[Any, RooflineResult]:
        cost = jit(f).lower(*args).cost_analysis()["flops"]
        return eval_shape(f, *args), RooflineResult(int(cost))

    return measured
