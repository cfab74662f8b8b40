"""Arithmetic for classes of objects that represent arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


def _method(function: Callable[..., Any], swapped: bool) -> Callable[..., Any]:
    def method(self: Any, other: Any) -> Any:
        mine = self.__jax_array__()
        if getattr(other, "__jax_array__", None) is not None:
            other = other.__jax_array__()
        return function(other, mine) if swapped else function(mine, other)

    return method


def _negative(self: Any) -> Any:
    return -self.__jax_array__()


def give_operators(kind: type) -> None:
    """Add operators to a class, which compute with the result of its method `__jax_array__`."""
    for name in ("add", "sub", "mul", "truediv", "matmul", "pow"):
        function = getattr(operator, name)
        setattr(kind, f"__{name}__", _method(function, False))
        setattr(kind, f"__r{name}__", _method(function, True))
    setattr(kind, "__neg__", _negative)  # noqa: B010 -- the class is not known here
