"""Sorting, and finding the largest elements.

In `sort`, NaN comes last; in `top_k`, NaN is the largest value. `approx_max_k` and `approx_min_k`
are exact. This module may import the engine, primitives and other modules of `lax`.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.lax import elementwise
from toile.lax._operands import axis_of, integer, operand, prepared
from toile.primitives.sorts import Sort, TopK

__all__ = ["approx_max_k", "approx_min_k", "sort", "sort_key_val", "top_k"]

_operand = operand


def sort(operand: ArrayLike | Sequence[ArrayLike], dimension: int = -1, is_stable: bool = True,
         num_keys: int = 1) -> Any:
    """Sort one array, or several arrays together, along an axis.

    If several arrays are given, the first `num_keys` of them are the keys, and all arrays are
    reordered in the same way. NaN comes last, after inf. Complex numbers are ordered by their real
    parts, then by their imaginary parts.

    Args:
        operand: an array, or a sequence of arrays of the same shape.
        dimension: the axis to sort along, the last axis by default; negative axes count from the
            end.
        is_stable: whether elements with equal keys keep their order.
        num_keys: number of arrays that are keys. Elements with equal first keys are ordered by
            their second keys, and so on.

    Returns:
        The sorted array, or a tuple of arrays if `operand` is a sequence. Shapes and dtypes do not
        change.

    >>> lax.sort(jnp.array([3, 1, 2]))
    Array([1, 2, 3], dtype=int32)
    >>> lax.sort((jnp.array([3, 1, 2]), jnp.array([30, 10, 20])))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    many = isinstance(operand, Sequence)
    given = operand if isinstance(operand, Sequence) else [operand]
    xs = [_operand("sort", x, i) for i, x in enumerate(given)]
    if not xs:
        raise TypeError("Sort requires at least one operand" + here())
    if not 1 <= num_keys <= len(xs):
        raise ValueError(f"{num_keys=} must be between 1 and {len(xs)=}{here()}")
    fields = (axis_of(dimension, xs[0].ndim), operator.index(num_keys), bool(is_stable))
    outs = prepared(Sort, fields, *(t for x in xs for t in (x.shape, x.dtype)))(*xs)
    return tuple(outs) if many else outs[0]


def sort_key_val(keys: ArrayLike, values: ArrayLike, dimension: int = -1,
                 is_stable: bool = True) -> tuple[Array, Array]:
    """Sort an array of keys and reorder another array in the same way.

    Args:
        keys: array to sort; NaN comes last.
        values: array to reorder, of the same shape as `keys`.
        dimension: the axis to sort along, the last axis by default; negative axes count from the
            end.
        is_stable: whether elements with equal keys keep their order.

    Returns:
        A pair of arrays: the sorted keys, and the values reordered with them.

    >>> lax.sort_key_val(jnp.array([3, 1, 2]), jnp.array([30, 10, 20]))
    (Array([1, 2, 3], dtype=int32), Array([10, 20, 30], dtype=int32))
    """
    k, v = sort((keys, values), dimension, is_stable, 1)
    return k, v


def top_k(operand: ArrayLike, k: int, *, axis: int = -1, is_stable: bool = True) -> list[Array]:
    """Find the `k` largest elements along an axis, in descending order, and their positions.

    NaN counts as the largest value, or as the smallest if its sign bit is set. Equal elements are
    returned in the order of their positions.

    Args:
        operand: array to search.
        k: number of elements to find, at most the size of the axis.
        axis: the axis to search, the last axis by default; negative axes count from the end.
        is_stable: ignored, because equal elements always keep their order.

    Returns:
        A list of two arrays that have size `k` along the axis: the elements, with the dtype of
        `operand`, and their positions, as int32.

    >>> lax.top_k(jnp.array([10, 40, 20, 30]), 2)
    [Array([40, 30], dtype=int32), Array([1, 3], dtype=int32)]
    """
    x = _operand("top_k", operand)
    count = integer(k, "k")
    if count < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}{here()}")
    axis = axis_of(axis, x.ndim)
    if x.shape[axis] > 2**31:
        raise ValueError("top_k returns int32 indices, which will overflow: needed an axis of at "
                         f"most 2**31 elements, got {x.aval.str_short()}{here()}")
    return prepared(TopK, (count, axis), x.shape, x.dtype)(x)


def _approximate(name: str, x: Any, k: int, axis: int, all_of_them: bool) -> list[Any]:
    if dtypes.kind(x.dtype) != "f":
        raise ValueError(f"{name}: needed a float operand, got {x.aval.str_short()}{here()}")
    axis = axis_of(axis, x.ndim)
    if not 0 < k <= x.shape[axis]:
        raise ValueError(f"{name}: needed 0 < k <= {x.shape[axis]}, the size of axis {axis}, got "
                         f"{k}{here()}")
    return top_k(x, x.shape[axis] if all_of_them else k, axis=axis)


def approx_max_k(operand: ArrayLike, k: int, reduction_dimension: int = -1,
                 recall_target: float = 0.95, reduction_input_size_override: int = -1,
                 aggregate_to_topk: bool = True) -> list[Array]:
    """Find the `k` largest elements along an axis.

    The search is exact, as in `top_k`. In JAX, this function is faster than `top_k` on TPUs, but
    may miss some of the elements.

    Args:
        operand: array of a float dtype.
        k: number of elements to find, at least 1 and at most the size of the axis.
        reduction_dimension: the axis to search; the last axis by default.
        recall_target: fraction of the `k` elements that must be found; ignored, because all of them
            are found.
        reduction_input_size_override: ignored.
        aggregate_to_topk: whether to return only `k` elements; if False, all elements of the axis
            are returned.

    Returns:
        A list of two arrays: the elements in descending order, and their positions, as int32.

    >>> lax.approx_max_k(jnp.array([10.0, 40.0, 20.0, 30.0]), 2)
    [Array([40., 30.], dtype=float32), Array([1, 3], dtype=int32)]
    """
    x = _operand("approx_max_k", operand)
    return _approximate("approx_max_k", x, k, reduction_dimension, not aggregate_to_topk)


def approx_min_k(operand: ArrayLike, k: int, reduction_dimension: int = -1,
                 recall_target: float = 0.95, reduction_input_size_override: int = -1,
                 aggregate_to_topk: bool = True) -> list[Array]:
    """Find the `k` smallest elements along an axis.

    The search is exact. In JAX, this function is faster than an exact search on TPUs, but may miss
    some of the elements.

    Args:
        operand: array of a float dtype.
        k: number of elements to find, at least 1 and at most the size of the axis.
        reduction_dimension: the axis to search; the last axis by default.
        recall_target: fraction of the `k` elements that must be found; ignored, because all of them
            are found.
        reduction_input_size_override: ignored.
        aggregate_to_topk: whether to return only `k` elements; if False, all elements of the axis
            are returned.

    Returns:
        A list of two arrays: the elements in ascending order, and their positions, as int32.

    >>> lax.approx_min_k(jnp.array([10.0, 40.0, 20.0, 30.0]), 2)
    [Array([10., 20.], dtype=float32), Array([0, 2], dtype=int32)]
    """
    x = _operand("approx_min_k", operand)
    negative = x if dtypes.kind(x.dtype) != "f" else elementwise.neg(x)
    values, places = _approximate("approx_min_k", negative, k, reduction_dimension,
                                  not aggregate_to_topk)
    return [elementwise.neg(values), places]
