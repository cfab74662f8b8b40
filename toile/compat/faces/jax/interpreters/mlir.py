"""`jax.interpreters.mlir`: how foreign primitives are compiled.

A primitive whose lowering was made by `lower_fun` is compiled like the function itself. The
implementation of other primitives runs as Python code between compiled steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["lower_fun", "register_lowering"]


@dataclass(frozen=True)
class LoweredFunction:
    """A function that replaces a primitive in compiled code."""

    fun: Callable[..., Any]
    multiple_results: bool

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.fun(*args, **params)

    def results(self, *args: Any, **params: Any) -> list[Any]:
        """The results of the function as a list."""
        found = self.fun(*args, **params)
        return list(found) if self.multiple_results else [found]


lowerings: dict[Any, LoweredFunction] = {}


def register_lowering(primitive: Any, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Compile a primitive as the function that was passed to `lower_fun`.

    Rules that are written for one platform, or in MLIR, are ignored."""
    if platform is None:
        lowerings.pop(primitive, None)
        if isinstance(rule, LoweredFunction):
            lowerings[primitive] = rule
    return rule


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> LoweredFunction:
    """The rule that compiles a function of arrays in place of a primitive."""
    return LoweredFunction(fun, multiple_results)
