"""Operations that choose among values or change their dtype: select, clamp, convert.

They need no arithmetic, so the rules of arithmetic may use them. This module may import the engine
and other modules of `primitives`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes, key_uses
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.primitives import division, integer_ranges, simplification
from toile.primitives.bits import and_, gt, lt
from toile.primitives.families import (
    ANY,
    Elementwise,
    add,
    align_mapped,
    bdim_at,
    broadcast_in_dim,
    fill_shape,
    full_like,
    instantiate,
)
from toile.primitives.rules import frame_rule, mapped_in_place


def like(x: Any, value: Any) -> Any:
    """A constant with the shape and dtype of `x`."""
    return broadcast_in_dim(full_like(x, value), x.shape, ())


class SelectN(Operation):
    """The elements that `which` selects from the cases.

    `which` is bool or int32, and has rank 0 or the shape of the cases.
    """

    value_range = integer_ranges.selected
    is_selection = True
    handles_zeros = True
    keeps_layout = True
    by_element = True
    divide = division.by_element
    taylor = frame_rule("linear")
    simplified = simplification.first_case
    at_zeros = simplification.zero_cases

    def infer(self, which: Aval, *cases: Aval) -> Aval:
        first = cases[0]
        ok = all(c.shape == first.shape and c.dtype == first.dtype for c in cases)
        if not ok or which.shape not in ((), first.shape):
            raise shape_error(
                "select", "a predicate of rank 0 or of the cases' shape and cases of equal shapes "
                "and dtypes", [which, *cases], "use toile.numpy.where, which broadcasts",
                self._problem(which, cases),
            )
        if which.dtype not in (np.bool_, np.int32) or (which.dtype == np.bool_ and len(cases) > 2):
            raise shape_error("select", "a bool predicate (or int32 for more than two cases)",
                              [which, *cases], said=self._problem(which, cases))
        return Aval(first.shape, first.dtype, all(c.weak_type for c in cases))

    def _problem(self, which: Aval, cases: Sequence[Aval]) -> str:
        """The mismatch, in JAX's words."""
        first = cases[0]
        if any(c.dtype != first.dtype for c in cases):
            return "select cases must have the same dtypes"
        if any(c.shape != first.shape for c in cases):
            return f"select cases must have the same shapes, got {[c.shape for c in cases]}"
        if which.shape not in ((), first.shape):
            return "select `which` must be scalar or have the same shape as cases"
        if which.dtype == np.bool_:
            return "select with boolean `which` cannot have > 2 cases"
        return "select `which` must be boolean or integer type"

    def flops(self, *avals: Aval) -> int:
        return avals[1].size

    def eager(self, xp: Any, which: Any, *cases: Any) -> Any:
        if len(cases) == 1:
            return cases[0]
        if which.dtype == np.bool_:
            return xp.where(which, cases[1], cases[0])
        index = xp.clip(which, 0, len(cases) - 1)
        out = cases[0]
        for i, case in enumerate(cases[1:], 1):
            out = xp.where(index == i, case, out)
        return out

    def lower(self, k: Any, which: Any, *cases: Any) -> Any:
        if len(cases) == 1:
            return cases[0]
        if which.dtype == np.bool_:
            return k.select(which, cases[1], cases[0])
        out = cases[0]
        for i, case in enumerate(cases[1:], 1):  # out-of-range indices take the nearest case
            out = k.select(k.ge(which, i), case, out)
        return out

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        out = self(*primals)
        if all(t.__class__ is Zero for t in tangents[1:]):
            return out, Zero(out)
        return out, self(primals[0], *(instantiate(t) for t in tangents[1:]))

    def transpose(self, ct: Any, which: Any, *cases: Any) -> Any:
        zero = like(ct, 0)
        found: list[Any] = [None]
        for i, c in enumerate(cases):
            parts = [ct if j == i else zero for j in range(len(cases))]
            found.append(SelectN()(which, *parts) if type(c) is Aval else None)
        return tuple(found)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        which, *cases = xs
        size = axis[1]
        if dims[0] is None and which.ndim == 0:
            moved = [bdim_at(c, d, size) for c, d in zip(cases, dims[1:], strict=True)]
            return SelectN()(which, *moved), 0
        aligned, dim = align_mapped(size, xs, dims)
        full = next((a.shape for a in aligned if a.ndim), ())
        filled = [_spread(a, full, dim) for a in aligned]
        return SelectN()(*filled), dim

    def physical(self, *avals: Aval) -> Operation:
        return _SelectKeys()

    def on_words(self, which: Any, *cases: Any) -> Any:
        shape = cases[0].shape
        if which.shape and which.shape != shape:
            which = broadcast_in_dim(which, shape, tuple(range(which.ndim)))
        return self(which, *cases)


def _spread(x: Any, shape: tuple[int, ...], dim: int) -> Any:
    return x if x.shape == shape else broadcast_in_dim(x, shape, ())


class _SelectKeys(Operation):
    """SelectN on the buffers of key arrays: the predicate does not have their last axis."""

    def eager(self, xp: Any, which: Any, *cases: Any) -> Any:
        return SelectN().eager(xp, which[..., None], *cases)


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    return select_n(pred, on_false, on_true)


class Clamp(Elementwise):
    """x, limited to the interval [low, high]; the bounds have rank 0 or the shape of x."""

    value_range = integer_ranges.clamped
    accepts = ANY
    taylor = frame_rule("clamped")

    def infer(self, low: Aval, x: Aval, high: Aval) -> Aval:
        out = super().infer(low, x, high)
        if out.shape != x.shape:
            raise shape_error(self.name, "bounds of rank 0 or of the operand's shape",
                              [low, x, high])
        return Aval(x.shape, x.dtype, x.weak_type and low.weak_type and high.weak_type)

    def eager(self, xp: Any, low: Any, x: Any, high: Any) -> Any:
        return xp.minimum(xp.maximum(x, low), high)

    def lower(self, k: Any, low: Any, x: Any, high: Any) -> Any:
        return k.minimum(k.maximum(x, low), high)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # Tangents are selected, not multiplied by 0: a non-finite one may be out of bounds.
        low, x, high = (fill_shape(v, primals[1].shape) for v in primals)
        out = clamp(*primals)
        inside = (
            lambda: and_(gt(low, x), lt(low, high)),
            lambda: and_(gt(x, low), lt(x, high)),
            lambda: lt(high, x),
        )
        terms = [
            select(chosen(), fill_shape(t, out.shape), like(out, 0))
            for t, chosen in zip(tangents, inside, strict=True)
            if t.__class__ is not Zero
        ]
        return out, functools.reduce(add, terms) if terms else Zero(out)


@dataclass(frozen=True)
class ConvertElementType(Operation):
    """The same values in another dtype; complex to real drops the imaginary parts."""

    dtype: Any
    weak: bool = False
    handles_zeros = True
    keeps_layout = True
    by_element = True
    only_rounds = lower_is_exact = True
    makes_weak = True
    divide = division.by_element
    key_use = key_uses.keeps
    taylor = sparse = frame_rule("converted")
    simplified = simplification.converted_once

    def infer(self, x: Aval) -> Aval:
        if dtypes.is_extended(x.dtype) or dtypes.is_extended(self.dtype):
            raise shape_error(self.name, f"a number to convert to {self.dtype}", [x])
        return Aval(x.shape, self.dtype, self.weak)

    def eager(self, xp: Any, x: Any) -> Any:
        return convert_raw(xp, x, self.dtype)

    def lower(self, k: Any, x: Any) -> Any:
        return k.convert(x, self.dtype)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        ok = dx.__class__ is not Zero and dtypes.is_inexact(self.dtype)
        return out, self(dx) if ok else Zero(out)

    def transpose(self, ct: Any, x: Any) -> Any:
        return ConvertElementType(x.dtype, x.weak_type)(ct)

    vmap = mapped_in_place


def convert_raw(xp: Any, x: Any, dtype: Any) -> Any:
    """astype, with defined results where NumPy's are undefined: floats saturate."""
    old, new = dtypes.kind(x.dtype), dtypes.kind(dtype)
    if old == "c" and new != "c":
        x = (x != 0) if new == "b" else x.real
        old = dtypes.kind(x.dtype)
    if old == "f" and new in "iu":
        return _saturated(xp, x, dtype)
    return x.astype(dtype)


def _saturated(xp: Any, x: Any, dtype: Any) -> Any:
    """Floats as integers: truncated, NaN as 0, out-of-range values as the nearest bound."""
    wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
    low, high, least, most = _bounds(dtype)
    if wide.size == 0 or (wide.min() >= low and wide.max() < high):  # NaN fails both
        return wide.astype(dtype)
    safe = xp.where(xp.isnan(wide), wide.dtype.type(0), wide)
    above, below = safe >= high, safe < low
    out = xp.where(above | below, wide.dtype.type(0), safe).astype(dtype)
    return xp.where(above, most, xp.where(below, least, out))


@functools.cache
def _bounds(dtype: Any) -> tuple[float, float, Any, Any]:
    """The least float in an integer dtype's range, the first above the range, and its ends."""
    info = dtypes.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return float(low), float(high + 1), np.asarray(low).astype(dtype), np.asarray(high, dtype)


def convert(x: Any, dtype: Any, weak: bool = False) -> Any:
    if x.dtype == dtype and x.weak_type == weak:
        return x
    return ConvertElementType(np.dtype(dtype), weak)(x)


clamp, select_n = Clamp(), SelectN()
