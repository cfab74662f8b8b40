"""Sorting, the k largest elements, and the positions of extrema.

The order is that of the array kernels: NaN comes last in `Sort`, and is the largest value in `TopK`
and `Argmax`. Tangents follow the elements they belong to. This module may import the engine and
other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives import arrays, division, integer_ranges
from toile.primitives.families import ANY, accepts_text, bdim_at, reshape, without
from toile.primitives.gathers import Gather, GatherDimensionNumbers, GatherScatterMode
from toile.primitives.rules import no_derivative
from toile.primitives.shapes import iota


def take_along(x: Any, index: Any, axis: int) -> Any:
    """The elements of x at the positions `index` along one axis, all distinct and in bounds."""
    others = tuple(d for d in range(x.ndim) if d != axis)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    op = Gather(
        numbers, (1,) * x.ndim, unique_indices=True, mode=GatherScatterMode.PROMISE_IN_BOUNDS
    )
    return op(x, reshape(index, (*index.shape, 1)))


def _index_dtype(size: int) -> np.dtype:
    return np.dtype(np.int32 if size < 2**31 else np.int64)


@dataclass(frozen=True)
class Sort(Operation):
    """All operands, sorted along one axis by the first `num_keys` of the operands."""

    dimension: int
    num_keys: int = 1
    is_stable: bool = True
    kernel_family = "sort"
    value_range = integer_ranges.reordered
    multiple = True
    handles_zeros = True

    def infer(self, *xs: Aval) -> list[Aval]:
        if not xs or any(x.shape != xs[0].shape for x in xs):
            raise shape_error(
                self.name, "operands of equal shapes", xs,
                said="Arguments to sort must have equal shapes",
            )
        if not 0 <= self.dimension < xs[0].ndim:
            raise shape_error(self.name, f"operands with a dimension {self.dimension}", xs)
        if not 1 <= self.num_keys <= len(xs):
            raise ValueError(
                f"sort: needed 1 <= num_keys <= {len(xs)} operands, got {self.num_keys}{here()}"
            )
        return list(xs)

    def eager(self, xp: Any, *xs: Any) -> Any:
        return arrays.sort(xp, xs, self.dimension, self.num_keys, self.is_stable)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        if all(t.__class__ is Zero for t in tangents):
            outs = self(*primals)
            return outs, [Zero(o) for o in outs]
        shape = primals[0].shape
        places = iota(_index_dtype(shape[self.dimension]), shape, self.dimension)
        *outs, order = self(*primals, places)
        moved = [
            Zero(o) if t.__class__ is Zero else take_along(t, order, self.dimension)
            for o, t in zip(outs, tangents, strict=True)
        ]
        return outs, moved

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        first = dims[0]
        if first is not None and all(d == first for d in dims):
            at, args = first, list(xs)
        else:
            at, args = 0, [bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True)]
        dimension = self.dimension + (self.dimension >= at)
        outs = Sort(dimension, self.num_keys, self.is_stable)(*args)
        return outs, [at] * len(outs)

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        return division.whole_along([self.dimension], self, f, ins, outs)


@dataclass(frozen=True)
class TopK(Operation):
    """The k largest elements along an axis, in descending order, and their indices."""

    k: int
    axis: int
    kernel_family = "sort.top_k"
    value_range = integer_ranges.largest
    multiple = True
    handles_zeros = True

    def infer(self, x: Aval) -> list[Aval]:
        if dtypes.kind(x.dtype) not in "biuf":
            raise shape_error(self.name, "real operands", [x])
        if not 0 <= self.axis < x.ndim:
            raise shape_error(self.name, f"an operand with an axis {self.axis}", [x])
        if not 0 <= self.k <= x.shape[self.axis]:
            raise ValueError(
                "k argument to top_k must be no larger than size along axis: needed 0 <= k <= "
                f"{x.shape[self.axis]}, got {self.k}{here()}"
            )
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return [x.with_shape(shape), Aval(shape, np.dtype(np.int32))]

    def eager(self, xp: Any, x: Any) -> Any:
        return arrays.top_k(xp, x, self.k, self.axis)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        values, index = self(*primals)
        if tangents[0].__class__ is Zero:
            return [values, index], [Zero(values), Zero(index)]
        return [values, index], [take_along(tangents[0], index, self.axis), Zero(index)]

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return TopK(self.k, self.axis + (self.axis >= d))(xs[0]), [d, d]

    divide = division.whole_along_axis


@dataclass(frozen=True)
class _ArgExtremum(Operation):
    axis: int
    index_dtype: Any
    kernel_family = "sort.extremum"
    handles_zeros = True
    accepts: ClassVar[str] = ANY.replace("c", "")
    extremum: ClassVar[str]
    combines = "places"

    def infer(self, x: Aval) -> Aval:
        if dtypes.kind(x.dtype) not in self.accepts:
            raise shape_error(self.name, f"{accepts_text(self.accepts)} operands", [x])
        if not 0 <= self.axis < x.ndim:
            raise ValueError(
                f"Invalid axis {self.axis} for operand shape {x.shape}: {self.name} needed one of "
                f"its {x.ndim} axes{here()}"
            )
        if x.shape[self.axis] < 1:
            raise ValueError(
                f"attempt to get argmin and argmax of an empty sequence: {self.name} require "
                f"non-empty reduced dimension: needed elements along axis {self.axis}, got shape "
                f"{x.shape} (check x.size first){here()}"
            )
        return Aval(without(x.shape, (self.axis,)), self.index_dtype)

    jvp = no_derivative

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        op = type(self)(self.axis + (self.axis >= d), self.index_dtype)
        return op(xs[0]), d - (self.axis < d)

    divide = division.whole_along_axis


@dataclass(frozen=True)
class Argmax(_ArgExtremum):
    """The index of the first occurrence of the largest element; NaN counts as the largest."""

    extremum = "max"
    def eager(self, xp: Any, x: Any) -> Any:
        return arrays.argmax(xp, x, self.axis, self.index_dtype)


@dataclass(frozen=True)
class Argmin(_ArgExtremum):
    """The index of the first occurrence of the smallest element; NaN counts as the smallest."""

    extremum = "min"
    def eager(self, xp: Any, x: Any) -> Any:
        return arrays.argmin(xp, x, self.axis, self.index_dtype)
