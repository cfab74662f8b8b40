"""Sorting and the largest elements.

NaN is last in `sort` and the largest in `top_k`. The approximate selections of other backends are
exact here. May import the engine, primitives, `_operands` and this package's shapes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.source import here
from toile.lax import elementwise
from toile.lax._operands import axis_of, operand, prepared
from toile.primitives.sorts import Sort, TopK

__all__ = ["approx_max_k", "approx_min_k", "sort", "sort_key_val", "top_k"]

_operand = operand


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sort along a dimension; of several operands, by the first `num_keys`, all of them alike."""
    many = isinstance(operand, Sequence)
    xs = [_operand("sort", x, i) for i, x in enumerate(operand if many else [operand])]
    if not xs:
        raise TypeError("Sort requires at least one operand" + here())
    if not 1 <= num_keys <= len(xs):
        raise ValueError(f"{num_keys=} must be between 1 and {len(xs)=}{here()}")
    fields = (axis_of(dimension, xs[0].ndim), operator.index(num_keys), bool(is_stable))
    outs = prepared(Sort, fields, *(t for x in xs for t in (x.shape, x.dtype)))(*xs)
    return tuple(outs) if many else outs[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1,
                 is_stable: bool = True) -> tuple[Any, Any]:
    """Keys in order, and values in the order of their keys."""
    k, v = sort((keys, values), dimension, is_stable, 1)
    return k, v


def top_k(operand: Any, k: int, *, axis: int = -1, is_stable: bool = True) -> list[Any]:
    """The k largest elements along an axis, in descending order, and their places.

    Equal elements keep their order, also where `is_stable` does not ask for it."""
    x = _operand("top_k", operand)
    count = operator.index(k)
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


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1,
                 aggregate_to_topk: bool = True) -> list[Any]:
    """The k largest elements and their places (all of them, in order, if not aggregated)."""
    x = _operand("approx_max_k", operand)
    return _approximate("approx_max_k", x, k, reduction_dimension, not aggregate_to_topk)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1,
                 aggregate_to_topk: bool = True) -> list[Any]:
    """The k least elements and their places (all of them, in order, if not aggregated)."""
    x = _operand("approx_min_k", operand)
    negative = x if dtypes.kind(x.dtype) != "f" else elementwise.neg(x)
    values, places = _approximate("approx_min_k", negative, k, reduction_dimension,
                                  not aggregate_to_topk)
    return [elementwise.neg(values), places]
