"""`jax.interpreters.batching`: the batching rules of foreign primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from toile.primitives.families import bdim_at, move_axis, reshape

__all__ = [
    "axis_primitive_batchers", "bdim_at_front", "broadcast", "defbroadcasting", "defvectorized",
    "is_vmappable", "moveaxis", "not_mapped", "primitive_batchers", "register_vmappable",
    "unregister_vmappable",
]

not_mapped = None
primitive_batchers: dict[Any, Callable[..., Any]] = {}
axis_primitive_batchers: dict[Any, Callable[..., Any]] = {}
moveaxis = move_axis
_vmappable: dict[type, tuple[Any, ...]] = {}


def register_vmappable(data_type: type, spec_type: type, axis_size_type: type, to_elt: Any,
                       from_elt: Any, make_iota: Any) -> None:
    """Note a type of values that `vmap` should map over as a whole.

    toile's `vmap` maps over the arrays in them, so they must be pytrees too."""
    _vmappable[data_type] = spec_type, axis_size_type, to_elt, from_elt, make_iota


def unregister_vmappable(data_type: type) -> None:
    """Undo `register_vmappable`."""
    del _vmappable[data_type]


def is_vmappable(x: Any) -> bool:
    """Whether the type of `x` was passed to `register_vmappable`."""
    return type(x) in _vmappable


def bdim_at_front(x: Any, dim: int | None, size: int) -> Any:
    """Move the mapped axis of `x` to the front; if it is not mapped, repeat it along a new axis."""
    return bdim_at(x, dim, size)


def broadcast(x: Any, size: int, axis: int, *_: Any) -> Any:
    """Repeat `x` along a new axis."""
    return bdim_at(x, None, size, axis)


def defbroadcasting(primitive: Any) -> None:
    """Declare that a primitive accepts operands of equal rank whose shapes broadcast."""

    def rule(args: Any, dims: Any, **params: Any) -> Any:
        rank = max(np.ndim(a) - (d is not None) for a, d in zip(args, dims, strict=True))
        moved = [a if d is None else bdim_at(a, d, a.shape[d])
                 for a, d in zip(args, dims, strict=True)]
        filled = [a if d is None or np.ndim(a) > rank
                  else reshape(a, (a.shape[0], *(1,) * (rank + 1 - a.ndim), *a.shape[1:]))
                  for a, d in zip(moved, dims, strict=True)]
        return primitive.bind(*filled, **params), 0

    primitive_batchers[primitive] = rule


def defvectorized(primitive: Any) -> None:
    """Declare that a primitive accepts additional axes if all operands are mapped alike."""

    def rule(args: Any, dims: Any, **params: Any) -> Any:
        dim = next(d for d in dims if d is not None)
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        moved = [bdim_at(a, d, size, dim) for a, d in zip(args, dims, strict=True)]
        return primitive.bind(*moved, **params), dim

    primitive_batchers[primitive] = rule
