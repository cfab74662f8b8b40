"""Reductions over axes: sums, extrema and their positions, cumulative and user-defined reductions.

`reduce` accepts any function. A plain sum, product, extremum or bitwise operation is replaced with
a specialized reduction. With any other function, the elements are combined in a balanced tree that
keeps their order. This module may import the engine, primitives and other modules of `lax`.
"""
# mypy: disable-error-code="empty-body"

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike, DTypeLike, PyTree
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
from toile.lax._operands import F, axes_of, named, operand, prepared, user_dtype
from toile.primitives import cumulative, reductions, sorts
from toile.primitives.families import ReduceSum, without

if TYPE_CHECKING:
    from toile.lax._operands import ShardingLike

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


# The decorators below supply the bodies of functions that are declared without statements.


def _reduction(kind: Any) -> Callable[[F], F]:
    """The body of a reduction."""

    def with_body(declared: F) -> F:
        name = declared.__name__

        def fun(operand: Any, axes: Sequence[int]) -> Any:
            x = operand if operand.__class__ is DeviceArray else _operand(name, operand)
            axes = axes_of(name, axes, x)
            return prepared(kind, (axes,), x.shape, x.dtype)(x)

        return named(fun, declared)

    return with_body


def _placed(kind: Any) -> Callable[[F], F]:
    """The body of a reduction that takes `out_sharding`, which needs no action on one device."""

    def with_body(declared: F) -> F:
        reduce = _reduction(kind)(declared)

        def fun(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Any:
            return reduce(operand, axes)

        return named(fun, declared)

    return with_body


@_reduction(reductions.ReduceProd)
def reduce_prod(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Multiply the elements along some axes.

    If there are no elements, the result is 1.

    Args:
        operand: array of a numeric dtype (not bool).
        axes: the axes to reduce, which must be distinct and nonnegative.

    Returns:
        An array with the dtype of `operand`, without the reduced axes.

    >>> lax.reduce_prod(jnp.array([[1, 2], [3, 4]]), (1,))
    Array([ 2, 12], dtype=int32)
    """


@_placed(reductions.ReduceMax)
def reduce_max(operand: ArrayLike, axes: Sequence[int], *,
               out_sharding: ShardingLike | None = None) -> Array:
    """Find the largest element along some axes.

    If any of the elements is NaN, the result is NaN. If there are no elements, the result is the
    lowest value of the dtype (-inf for floats).

    Args:
        operand: array of any dtype.
        axes: the axes to reduce, which must be distinct and nonnegative.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the dtype of `operand`, without the reduced axes.

    >>> lax.reduce_max(jnp.array([[1, 5], [4, 3]]), (1,))
    Array([5, 4], dtype=int32)
    """


@_placed(reductions.ReduceMin)
def reduce_min(operand: ArrayLike, axes: Sequence[int], *,
               out_sharding: ShardingLike | None = None) -> Array:
    """Find the smallest element along some axes.

    If any of the elements is NaN, the result is NaN. If there are no elements, the result is the
    highest value of the dtype (inf for floats).

    Args:
        operand: array of any dtype.
        axes: the axes to reduce, which must be distinct and nonnegative.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the dtype of `operand`, without the reduced axes.

    >>> lax.reduce_min(jnp.array([[1, 5], [4, 3]]), (1,))
    Array([1, 3], dtype=int32)
    """


@_reduction(reductions.ReduceAnd)
def reduce_and(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the bitwise "and" of the elements along some axes.

    For bool arrays, the result is True if all elements are True.

    Args:
        operand: array of a bool or integer dtype.
        axes: the axes to reduce, which must be distinct and nonnegative.

    Returns:
        An array with the dtype of `operand`, without the reduced axes.

    >>> lax.reduce_and(jnp.array([[True, True], [True, False]]), (1,))
    Array([ True, False], dtype=bool)
    """


@_reduction(reductions.ReduceOr)
def reduce_or(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the bitwise "or" of the elements along some axes.

    For bool arrays, the result is True if any element is True.

    Args:
        operand: array of a bool or integer dtype.
        axes: the axes to reduce, which must be distinct and nonnegative.

    Returns:
        An array with the dtype of `operand`, without the reduced axes.

    >>> lax.reduce_or(jnp.array([[False, True], [False, False]]), (1,))
    Array([ True, False], dtype=bool)
    """


@_reduction(reductions.ReduceXor)
def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Compute the bitwise "exclusive or" of the elements along some axes.

    For bool arrays, the result is True if the number of True elements is odd.

    Args:
        operand: array of a bool or integer dtype.
        axes: the axes to reduce, which must be distinct and nonnegative.

    Returns:
        An array with the dtype of `operand`, without the reduced axes.

    >>> lax.reduce_xor(jnp.array([[0b1100, 0b1010]]), (1,))
    Array([6], dtype=int32)
    """


def reduce_sum(operand: ArrayLike, axes: Sequence[int], *,
               out_sharding: ShardingLike | None = None) -> Array:
    """Add the elements along some axes.

    Args:
        operand: array of a numeric dtype (not bool).
        axes: the axes to reduce, which must be distinct and nonnegative.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array with the dtype of `operand`, without the reduced axes. Sums of narrow integers may
        wrap around; `jnp.sum` widens the integers first.

    >>> lax.reduce_sum(jnp.array([[1, 2], [3, 4]]), (1,))
    Array([3, 7], dtype=int32)
    """
    x = operand if operand.__class__ is DeviceArray else _operand("reduce_sum", operand)
    axes = axes_of("reduce_sum", axes, x)
    if x.dtype.kind == "b":
        raise shape_error("reduce_sum", "a numeric operand", [x.aval])
    return prepared(ReduceSum, (axes,), x.shape, x.dtype)(x)


# ----------------------------------------------------------------------------- any computation


def reduce(operands: PyTree, init_values: PyTree, computation: Callable[[Any, Any], Any],
           dimensions: Sequence[int], out_sharding: ShardingLike | None = None) -> PyTree:
    """Combine the elements along some axes with a given function.

    The elements are combined in a balanced tree, so `computation` must be associative:
    `computation(a, computation(b, c))` must equal `computation(computation(a, b), c)`. The order of
    the elements is kept. If `computation` is a sum, product, maximum, minimum or bitwise operation,
    it is recognized and replaced with a specialized reduction. For example, `lax.add` and
    `lambda a, b: a + b` are both recognized as sums.

    Args:
        operands: an array, or a tree of arrays of the same shape that are reduced together.
        init_values: for each array, a scalar of its dtype, which is combined with the elements. The
            scalar is usually the identity element, such as 0 for a sum. If there are no elements,
            the result is this scalar.
        computation: an associative function that combines two scalars, or two trees of scalars,
            into one. It is traced once, and applied to many elements at a time.
        dimensions: the axes to reduce, which must be distinct and nonnegative.
        out_sharding: accepted for compatibility with JAX, and ignored.

    Returns:
        An array, or a tree of arrays, without the reduced axes.

    >>> lax.reduce(jnp.array([[1, 2], [3, 4]]), 1, lambda a, b: a * b, (1,))
    Array([ 2, 12], dtype=int32)

    Reduce two arrays together, to find the largest value and its position:

    >>> def larger(a, b):
    ...     first = a[0] >= b[0]
    ...     return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])
    >>> values, places = jnp.array([3.0, 7.0, 5.0]), jnp.arange(3)
    >>> lax.reduce((values, places), (-jnp.inf, -1), larger, (0,))
    (Array(7., dtype=float32), Array(1, dtype=int32))
    """
    xs, inits, tree = operands_and_inits("reduce", operands, init_values, computation)
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
    outs = combine(starts, folded)
    return unflatten(tree, [settle_weak(o, x) for o, x in zip(outs, xs, strict=True)])


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """`x` with the reduced axes moved to the front and merged into one axis."""
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    size = math.prod(x.shape[a] for a in axes)
    return shapes.reshape(x, (size, *without(x.shape, axes)), (*axes, *kept))


def _folded(combine: Computation, xs: list[Any]) -> list[Any] | None:
    """Combine neighbors along the first axis until one row is left; None if there is none."""
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
        raise TypeError(f"{name}: index_dtype must be an integer type, got "
                        f"{dtypes.name_of(dtype)}{here()}")
    return prepared(kind, (operator.index(axis), dtype), x.shape, x.dtype)(x)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Find the position of the largest element along an axis.

    If the largest element occurs several times, the first position is returned. NaN counts as the
    largest value.

    Args:
        operand: array of a bool, integer or float dtype.
        axis: the axis to search, which must be nonnegative.
        index_dtype: integer dtype of the result.

    Returns:
        An array of dtype `index_dtype`, without the searched axis.

    >>> lax.argmax(jnp.array([[1, 5, 2], [4, 3, 4]]), 1, jnp.int32)
    Array([1, 0], dtype=int32)
    """
    return _extremum("argmax", sorts.Argmax, operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """Find the position of the smallest element along an axis.

    If the smallest element occurs several times, the first position is returned. NaN counts as the
    smallest value.

    Args:
        operand: array of a bool, integer or float dtype.
        axis: the axis to search, which must be nonnegative.
        index_dtype: integer dtype of the result.

    Returns:
        An array of dtype `index_dtype`, without the searched axis.

    >>> lax.argmin(jnp.array([[1, 5, 2], [4, 3, 3]]), 1, jnp.int32)
    Array([0, 1], dtype=int32)
    """
    return _extremum("argmin", sorts.Argmin, operand, axis, index_dtype)


def _running(kind: Any) -> Callable[[F], F]:
    """The body of a function that returns the partial results along an axis."""

    def with_body(declared: F) -> F:
        name = declared.__name__

        def fun(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
            x = _operand(name, operand)
            return prepared(kind, (operator.index(axis), bool(reverse)), x.shape, x.dtype)(x)

        return named(fun, declared)

    return with_body


@_running(cumulative.Cumsum)
def cumsum(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the cumulative sum along an axis.

    Args:
        operand: array of a numeric dtype (not bool).
        axis: the axis to accumulate along, which must be nonnegative; by default, the first axis.
        reverse: whether to accumulate from the end of the axis to its start.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.cumsum(jnp.array([1, 2, 3]))
    Array([1, 3, 6], dtype=int32)
    """


@_running(cumulative.Cumprod)
def cumprod(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the cumulative product along an axis.

    Args:
        operand: array of a numeric dtype (not bool).
        axis: the axis to accumulate along, which must be nonnegative; by default, the first axis.
        reverse: whether to accumulate from the end of the axis to its start.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.cumprod(jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """


@_running(cumulative.Cummax)
def cummax(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the cumulative maximum along an axis.

    From the first NaN on, the result is NaN.

    Args:
        operand: array of a numeric dtype (not bool).
        axis: the axis to accumulate along, which must be nonnegative; by default, the first axis.
        reverse: whether to accumulate from the end of the axis to its start.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.cummax(jnp.array([1, 3, 2, 4]))
    Array([1, 3, 3, 4], dtype=int32)
    """


@_running(cumulative.Cummin)
def cummin(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the cumulative minimum along an axis.

    From the first NaN on, the result is NaN.

    Args:
        operand: array of a numeric dtype (not bool).
        axis: the axis to accumulate along, which must be nonnegative; by default, the first axis.
        reverse: whether to accumulate from the end of the axis to its start.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.cummin(jnp.array([3, 1, 2, 0]))
    Array([3, 1, 1, 0], dtype=int32)
    """


@_running(cumulative.Cumlogsumexp)
def cumlogsumexp(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
    """Compute the logarithm of the cumulative sum of exponentials along an axis.

    The result does not overflow, even where the exponentials would overflow.

    Args:
        operand: array of a float or complex dtype.
        axis: the axis to accumulate along, which must be nonnegative; by default, the first axis.
        reverse: whether to accumulate from the end of the axis to its start.

    Returns:
        An array with the shape and dtype of `operand`.

    >>> lax.cumlogsumexp(jnp.array([0.0, 0.0, 100.0]))
    Array([  0.       ,   0.6931472, 100.       ], dtype=float32)
    """
