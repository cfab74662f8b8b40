"""Reductions over axes: the common ones, positions of extrema, running results, and any other.

`reduce` takes a computation of the user's; one that is a plain sum, product, extremum or bitwise
operation becomes that reduction, any other folds the elements in a balanced tree that keeps their
order. May import the engine, primitives, `_operands` and `_computations`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.arrays import DeviceArray
from toile.engine.errors import shape_error
from toile.engine.source import here
from toile.engine.trees import unflatten
from toile.lax import shapes
from toile.lax._computations import (
    COMBINE,
    Computation,
    is_identity,
    operands_and_inits,
    settle_weak,
)
from toile.lax._operands import axes_of, named, operand, prepared, user_dtype
from toile.primitives import cumulative, reductions, sorts
from toile.primitives.families import ReduceSum, without

__all__ = [
    "argmax", "argmin", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "reduce",
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod", "reduce_sum",
    "reduce_xor",
]  # fmt: skip

_operand = operand
_REDUCTIONS = {
    "add": ReduceSum, "mul": reductions.ReduceProd, "max": reductions.ReduceMax,
    "min": reductions.ReduceMin, "and": reductions.ReduceAnd, "or": reductions.ReduceOr,
    "xor": reductions.ReduceXor,
}  # fmt: skip


def _reduction(name: str, kind: Any) -> Callable[[Any, Sequence[int]], Any]:
    def fun(operand: Any, axes: Sequence[int]) -> Any:
        x = operand if operand.__class__ is DeviceArray else _operand(name, operand)
        axes = axes_of(name, axes, x)
        return prepared(kind, (axes,), x.shape, x.dtype)(x)

    return named(fun, name, kind.__doc__)


def _placed(name: str, kind: Any) -> Callable[..., Any]:
    """A reduction that takes `out_sharding`, which holds of itself on one device."""
    reduce = _reduction(name, kind)

    def fun(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Any:
        return reduce(operand, axes)

    return named(fun, name, kind.__doc__)


reduce_prod = _reduction("reduce_prod", reductions.ReduceProd)
reduce_max = _placed("reduce_max", reductions.ReduceMax)
reduce_min = _placed("reduce_min", reductions.ReduceMin)
reduce_and = _reduction("reduce_and", reductions.ReduceAnd)
reduce_or = _reduction("reduce_or", reductions.ReduceOr)
reduce_xor = _reduction("reduce_xor", reductions.ReduceXor)


def reduce_sum(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Any:
    """Sum over `axes`, which leave the shape; the dtype is kept."""
    x = operand if operand.__class__ is DeviceArray else _operand("reduce_sum", operand)
    axes = axes_of("reduce_sum", axes, x)
    if x.dtype.kind == "b":
        raise shape_error("reduce_sum", "a numeric operand", [x.aval])
    return prepared(ReduceSum, (axes,), x.shape, x.dtype)(x)


# ----------------------------------------------------------------------------- any computation


def reduce(operands: Any, init_values: Any, computation: Callable[[Any, Any], Any],
           dimensions: Sequence[int], out_sharding: Any = None) -> Any:
    """Fold a tree of arrays over some axes with an associative function of scalars."""
    xs, inits, tree = operands_and_inits("reduce", operands, init_values)
    axes = axes_of("reduce", dimensions, xs[0])
    combine = Computation("reduce", computation, tree, [i.aval for i in inits])
    if combine.kind is not None:
        (x,), (init,) = xs, inits
        out = prepared(_REDUCTIONS[combine.kind], (axes,), x.shape, x.dtype)(x)
        if is_identity(combine.kind, init):
            return unflatten(tree, [settle_weak(out, init)])
        return unflatten(tree, [COMBINE[combine.kind](out, init)])
    shape = without(xs[0].shape, axes)
    starts = [shapes.broadcast_in_dim(i, shape, ()) for i in inits]
    folded = _folded(combine, [_rows(x, axes) for x in xs])
    if folded is None:
        return unflatten(tree, [settle_weak(s, x) for s, x in zip(starts, xs, strict=True)])
    return unflatten(tree, combine(starts, folded))


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """The reduced axes in front, as one axis."""
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    size = math.prod(x.shape[a] for a in axes)
    return shapes.reshape(x, (size, *without(x.shape, axes)), (*axes, *kept))


def _folded(combine: Computation, xs: list[Any]) -> list[Any] | None:
    """Combine neighbours along the first axis until one row is left; None if there is none."""
    n = xs[0].shape[0]
    if n == 0:
        return None
    while n > 1:
        pairs = [(shapes.slice_in_dim(x, 0, n - n % 2, 2), shapes.slice_in_dim(x, 1, n, 2))
                 for x in xs]
        outs = combine([a for a, _ in pairs], [b for _, b in pairs])
        if n % 2:
            last = [shapes.slice_in_dim(x, n - 1, n) for x in xs]
            outs = [shapes.concatenate([o, t], 0) for o, t in zip(outs, last, strict=True)]
        xs, n = outs, n // 2 + n % 2
    return [shapes.squeeze(x, (0,)) for x in xs]


# ------------------------------------------------------------------------- places and running sums


def _extremum(name: str, kind: Any, operand: Any, axis: int, index_dtype: Any) -> Any:
    x = _operand(name, operand)
    dtype = user_dtype(index_dtype, name)
    if dtypes.kind(dtype) not in "iu":
        raise TypeError(f"{name}: needed an integer index_dtype, got "
                        f"{dtypes.name_of(dtype)}{here()}")
    return prepared(kind, (operator.index(axis), dtype), x.shape, x.dtype)(x)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Place of the first largest element along an axis; a NaN counts as the largest."""
    return _extremum("argmax", sorts.Argmax, operand, axis, index_dtype)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Place of the first least element along an axis; a NaN counts as the least."""
    return _extremum("argmin", sorts.Argmin, operand, axis, index_dtype)


def _running(name: str, kind: Any) -> Callable[..., Any]:
    def fun(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        x = _operand(name, operand)
        return prepared(kind, (operator.index(axis), bool(reverse)), x.shape, x.dtype)(x)

    return named(fun, name, kind.__doc__)


cumsum = _running("cumsum", cumulative.Cumsum)
cumprod = _running("cumprod", cumulative.Cumprod)
cummax = _running("cummax", cumulative.Cummax)
cummin = _running("cummin", cumulative.Cummin)
cumlogsumexp = _running("cumlogsumexp", cumulative.Cumlogsumexp)
