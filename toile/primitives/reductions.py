"""Reductions over axes: product, maximum, minimum, and, or, xor (the sum is in families).

Derivatives are JAX's: ties of max and min share the cotangent equally; the product's derivative
uses the products of the other elements, so that zeros are exact. This module may import the engine
and other modules of `primitives`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives import division
from toile.primitives.bits import eq
from toile.primitives.elementwise import Max, Min, convert, div
from toile.primitives.families import (
    ANY,
    INTEGRAL,
    NUMERIC,
    Mul,
    OverAxes,
    accepts_text,
    add,
    broadcast_in_dim,
    mul,
    reduce_sum,
    reshape,
    transpose,
    without,
)
from toile.primitives.shapes import concatenate_all, slice_axis


class Reduction(OverAxes):
    """Combines the elements along `axes`, which the result does not have; keeps the dtype."""

    handles_zeros = True
    accepts: ClassVar[str] = ANY
    # The reduction over devices that continues it; "": there is none.
    over_devices: ClassVar[str] = ""
    combines = "axes"

    def infer(self, x: Aval) -> Aval:
        out = super().infer(x)
        if dtypes.kind(x.dtype) not in self.accepts:
            raise shape_error(self.name, f"a {accepts_text(self.accepts)} operand", [x],
                              "convert it with .astype")
        return out

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        return out, Zero(out) if dx.__class__ is Zero else self.tangent(out, x, dx)

    def tangent(self, out: Any, x: Any, dx: Any) -> Any:
        """The tangent of the result."""
        raise NotImplementedError(f"{self.name}: has no derivative{here()}")

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        if not self.over_devices:
            return division.whole_along(self.axes, self, f, ins, outs)
        (x,), (out,) = ins, outs
        value = self(f.natural(x))
        names = f.ordered([n for i in self.axes for n in x.layout[i]])
        value = f.reduced(self.over_devices, names, value) if names else value
        return [f.placed(out, division.without_axes(x.layout, self.axes), value)]


class _Extreme(Reduction):
    needs_order = True

    def tangent(self, out: Any, x: Any, dx: Any) -> Any:
        kept = tuple(i for i in range(x.ndim) if i not in self.axes)
        hit = convert(eq(x, broadcast_in_dim(out, x.shape, kept)), dx.dtype)
        return div(reduce_sum(mul(dx, hit), self.axes), reduce_sum(hit, self.axes))


def _narrow(x: Any) -> Any:
    """Extension floats as float32, which holds them exactly; others unchanged."""
    return x.astype(np.float32) if x.dtype.kind == "V" and dtypes.kind(x.dtype) == "f" else x


@dataclass(frozen=True)
class ReduceMax(_Extreme):
    """The largest element.

    The result is NaN if any element is NaN, and the dtype's lowest value if there are no elements.
    """

    axes: tuple[int, ...]
    over_devices, of_two = "max", Max()

    def eager(self, xp: Any, x: Any) -> Any:
        return extreme(xp, x, self.axes, xp.maximum, lowest(x.dtype))


@dataclass(frozen=True)
class ReduceMin(_Extreme):
    """The smallest element.

    The result is NaN if any element is NaN, and the dtype's highest value if there are no elements.
    """

    axes: tuple[int, ...]
    over_devices, of_two = "min", Min()

    def eager(self, xp: Any, x: Any) -> Any:
        return extreme(xp, x, self.axes, xp.minimum, highest(x.dtype))


def extreme(xp: Any, x: Any, axes: tuple[int, ...], ufunc: Any, start: Any) -> Any:
    """ufunc.reduce over axes; `start` is the value of an empty reduction."""
    if x.size == 0:
        return xp.full(without(x.shape, axes), start, x.dtype)
    return ufunc.reduce(_narrow(x), axis=axes).astype(x.dtype, copy=False)


def lowest(dtype: Any) -> Any:
    """The identity of max: -inf, the smallest integer, or False."""
    match dtypes.kind(dtype):
        case "b":
            return False
        case "i" | "u":
            return dtypes.iinfo(dtype).min
        case "c":
            return complex(-np.inf, -np.inf)
    return -np.inf if dtypes.supports_inf(dtype) else dtypes.finfo(dtype).min


def highest(dtype: Any) -> Any:
    """The identity of min: inf, the largest integer, or True."""
    match dtypes.kind(dtype):
        case "b":
            return True
        case "i" | "u":
            return dtypes.iinfo(dtype).max
        case "c":
            return complex(np.inf, np.inf)
    return np.inf if dtypes.supports_inf(dtype) else dtypes.finfo(dtype).max


@dataclass(frozen=True)
class ReduceProd(Reduction):
    """The product of the elements."""

    axes: tuple[int, ...]
    accepts = NUMERIC
    can_make_nan, of_two = True, Mul()

    def eager(self, xp: Any, x: Any) -> Any:
        wide = x.astype(np.float32) if x.dtype.kind == "V" or x.dtype.char == "e" else x
        return xp.multiply.reduce(wide, axis=self.axes, dtype=wide.dtype).astype(
            x.dtype, copy=False
        )

    def tangent(self, out: Any, x: Any, dx: Any) -> Any:
        # dx is last: products that begin with a small dx would be subnormal, which is slow.
        if not x.size or math.prod([x.shape[a] for a in self.axes]) == 1:
            return reduce_sum(dx, self.axes)
        axis = self.axes[0] if len(self.axes) == 1 else 0
        if len(self.axes) > 1:
            x, dx = (_rows(v, self.axes) for v in (x, dx))
        start, total = 0, None
        for others in _others(x, axis):
            stop = start + others.shape[axis]
            term = reduce_sum(mul(slice_axis(dx, start, stop, axis), others), (axis,))
            start, total = stop, term if total is None else add(total, term)
        return total


def _others(p: Any, axis: int) -> list[Any]:
    """For each element, the product of all others along the axis, computed with a balanced tree;
    returned as consecutive parts of one array."""
    n, half = p.shape[axis], p.shape[axis] // 2
    part = lambda x, start, stop: slice_axis(x, start, stop, axis)
    left, right = part(p, 0, half), part(p, half, 2 * half)
    if n == 2:
        return [right, left]
    last = [part(p, n - 1, n)] if n % 2 else []
    product = concatenate_all([mul(left, right), *last], axis)
    above = concatenate_all(_others(product, axis), axis)
    both = part(above, 0, half)
    last = [part(above, half, half + 1)] if last else []
    return [mul(both, right), mul(both, left), *last]


def _rows(x: Any, axes: tuple[int, ...]) -> Any:
    """The reduced axes first, as one axis."""
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    size = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    moved = transpose(x, (*axes, *kept))
    return reshape(moved, (size, *without(x.shape, axes)))


class _Logical(Reduction):
    accepts = INTEGRAL

    def tangent(self, out: Any, x: Any, dx: Any) -> Any:
        return Zero(out)

    def divide(self, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        if outs[0].dtype == np.bool_:
            return super().divide(f, ins, outs)
        return division.whole_along(self.axes, self, f, ins, outs)  # bitwise results are no extrema


def _logical(name: str, text: str, function: str, over_devices: str = "") -> Any:
    def eager(self: Any, xp: Any, x: Any) -> Any:
        return getattr(xp, function).reduce(x, axis=self.axes)

    body = {
        "__doc__": text,
        "eager": eager,
        "over_devices": over_devices,
        "__module__": __name__,
        "__annotations__": {"axes": "tuple[int, ...]"},
    }
    return dataclass(frozen=True)(type(name, (_Logical,), body))


ReduceAnd = _logical("ReduceAnd", "The bitwise AND of the elements.", "bitwise_and", "min")
ReduceOr = _logical("ReduceOr", "The bitwise OR of the elements.", "bitwise_or", "max")
ReduceXor = _logical("ReduceXor", "The bitwise exclusive OR of the elements.", "bitwise_xor")
