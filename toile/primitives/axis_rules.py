"""Axis rules of the operations in `primitives.families` that change an array's axes.

`domain_axes`, `moved_axis`, `grown_axis` and `repeated` answer questions of the compiler
(`engine.traits`). This module may import the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.traits import Shape


def broadcast_domain(op: Any, group: Any, m: Any) -> Any:
    return group.broadcast(op.shape, op.dims, m)


def reshape_domain(op: Any, group: Any, m: Any) -> Any:
    return group.reshape(op.shape, m)


def transpose_domain(op: Any, group: Any, m: Any) -> Any:
    return tuple(m[p] for p in op.perm)


def broadcast_axis(op: Any, shape: Sequence[int], axis: int) -> int | None:
    d = op.dims[axis]
    return d if shape[axis] == op.shape[d] else None


def reshape_axis(op: Any, shape: Sequence[int], axis: int) -> int | None:
    n, before = shape[axis], prod(shape[:axis])
    return next((d for d, m in enumerate(op.shape)
                 if m == n > 1 and prod(op.shape[:d]) == before > 0), None)


def transpose_axis(op: Any, shape: Sequence[int], axis: int) -> int | None:
    return op.perm.index(axis)


def kept(op: Any, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
    return None if axis in op.axes else axis - sum(a < axis for a in op.axes)


def reshaped(op: Any, i: int, shape: Shape, axis: int, result: Shape, n: int) -> int | None:
    """The axis of the new shape that contains the old one, or its outer part."""
    before, passed = prod(shape[:axis]), 1
    for j, extent in enumerate(result):
        if extent > 1 and passed <= before < passed * extent and extent % n == 0:
            return j
        passed *= extent
    return None


def repeated(op: Any) -> Any:
    if 0 in op.dims:
        return None
    return op.__class__(op.shape[1:], tuple(d - 1 for d in op.dims))


def broadcast_problem(op: Any, x: Aval) -> str:
    """Why an operand cannot be broadcast, in JAX's words."""
    what = "broadcast_in_dim broadcast_dimensions must"
    if len(op.dims) != x.ndim:
        return (f"{what} have length equal to operand ndim; got broadcast_dimensions "
                f"{op.dims} for operand ndim {x.ndim}")
    if len(op.shape) < x.ndim:
        return ("broadcast_in_dim target broadcast shape must have equal or higher rank to the "
                f"operand shape; got operand ndim {x.ndim} and target shape {op.shape}")
    if any(not 0 <= d < len(op.shape) for d in op.dims):
        return (f"{what} be a subset of output dimensions, got {op.dims} for operand ndim "
                f"{x.ndim} and shape {op.shape}")
    if len(set(op.dims)) != len(op.dims):
        return f"{what} not contain duplicates, got broadcast_dimensions {op.dims}"
    if list(op.dims) != sorted(op.dims):
        return f"{what} be strictly increasing; got broadcast_dimensions {op.dims}"
    return (
        "broadcast_in_dim operand dimension sizes must either be 1, or be equal to their "
        "corresponding dimensions in the target broadcast shape; got operand of shape "
        f"{x.shape}, target broadcast shape {op.shape}, broadcast_dimensions {op.dims}"
    )


def check_axes(op: Any, x: Aval, axes: Sequence[int]) -> None:
    """Raise unless the axes of a reduction are sorted, distinct and in range."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < x.ndim for a in axes):
        raise shape_error(
            op.name, f"distinct axes in [0, {x.ndim}), here {tuple(axes)}", [x],
            "count axes from 0, or use the function of toile.numpy for negative ones",
        )


# ---------------------------------------------------------------------------------- rearrangements


def undoes_reshape(op: Any, first: Any, x: Any) -> bool:
    """Whether a reshape restores the shape that an array had before the reshape `first`."""
    return first.__class__ is op.__class__ and op.shape == x.shape


def undoes_transpose(op: Any, first: Any, x: Any) -> bool:
    """Whether a transpose restores the order that axes had before the transpose `first`."""
    return first.__class__ is op.__class__ and all(
        first.perm[p] == i for i, p in enumerate(op.perm))
