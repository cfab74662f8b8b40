"""`jax.interpreters.mlir`: how foreign primitives are compiled; toile runs their implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["lower_fun", "register_lowering"]


def register_lowering(primitive: Any, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Do nothing; a compiled Program calls the function that was passed to `def_impl`."""
    return rule


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Callable[..., Any]:
    """Return the function itself."""
    return fun
