"""Reductions over sliding windows, and the two operations that select an element of each window.

The elements of the operand are `base_dilation` apart, and the operand is padded by `padding`.
Windows are `window_strides` apart; each has `window_dimensions` elements, which are
`window_dilation` apart. Gaps and padding count as the identity of the reduction. This module may
import the engine and other modules of `primitives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, ClassVar

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives import arrays, division
from toile.primitives.families import (
    ANY,
    INTEGRAL,
    NUMERIC,
    REAL,
    accepts_text,
    bdim_at,
    broadcast_in_dim,
    full_like,
    mul,
    reshape,
)
from toile.primitives.reductions import highest, lowest
from toile.primitives.shapes import pad, slice_

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def dilated(size: int, dilation: int) -> int:
    """Extent of `size` elements that are `dilation` apart."""
    return 0 if size == 0 else (size - 1) * dilation + 1


def transposed_padding(
    shape: Sequence[int], window: Sequence[int], strides: Sequence[int], out: Sequence[int],
    padding: Sequence[tuple[int, int]], base: Sequence[int], dilation: Sequence[int],
) -> Pairs:  # fmt: skip
    """Padding of the cotangent, dilated by `strides`, so that windows over it sum to the
    operand's cotangent."""
    pads = []
    for n, w, s, m, (low, _), b, d in zip(
        shape, window, strides, out, padding, base, dilation, strict=True
    ):
        before = dilated(w, d) - low - 1
        after = dilated(n, b) + dilated(w, d) - 1 - dilated(m, s) - before
        pads.append((before, after))
    return tuple(pads)


def _check_window(op: Any, avals: Sequence[Aval], fields: Sequence[Sequence[Any]]) -> None:
    rank = avals[-1].ndim
    counts = [len(f) for f in fields]
    positive = all(n > 0 for f in (*fields[:2], *fields[3:]) for n in f)
    if any(c != rank for c in counts) or not positive:
        raise shape_error(
            op.name, f"a positive window, stride and dilation for each of {rank} axes, here "
            f"window {fields[0]}, strides {fields[1]}, padding {fields[2]}", avals,
            said=f"{op.name} window, strides and dilations must have every element be positive",
        )  # fmt: skip


def _geometry(op: Any) -> tuple[Sizes, Sizes, Pairs, Sizes, Sizes]:
    """The window parameters of an operation, as arguments."""
    return (op.window_dimensions, op.window_strides, op.padding, op.base_dilation,
            op.window_dilation)


# ---------------------------------------------------------------------------------------- monoids


@dataclass(frozen=True)
class _ReduceWindow(Operation):
    """Combine the elements of each window with an associative function."""

    kernel_family: ClassVar[str | None] = "window"
    handles_zeros = True
    accepts: ClassVar[str] = ANY
    kind: ClassVar[str]
    scatters: ClassVar[bool] = False  # whether the result has the operand's shape

    window_dimensions: Sizes
    window_strides: Sizes
    padding: Pairs
    base_dilation: Sizes
    window_dilation: Sizes
    divide = division.by_windows

    geometry = _geometry

    def infer(self, x: Aval) -> Aval:
        _check_window(self, [x], self.geometry())
        if dtypes.kind(x.dtype) not in self.accepts:
            raise shape_error(self.name, f"{accepts_text(self.accepts)} operands", [x])
        return x.with_shape(arrays.window_output_shape(x.shape, *self.geometry()))

    def eager(self, xp: Any, x: Any) -> Any:
        return arrays.reduce_window(xp, x, None, self.kind, *self.geometry())

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        out = self(x)
        return out, Zero(out) if dx.__class__ is Zero else self.tangent(x, dx)

    def tangent(self, x: Any, dx: Any) -> Any:
        """The tangent of the result."""
        raise NotImplementedError(f"{self.name}: has no derivative{here()}")

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        return _with_axis(self, dims[0])(xs[0]), dims[0]

    def flops(self, *avals: Aval) -> int:
        taps = 1
        for n in self.window_dimensions:
            taps *= n
        return self.infer(*avals).size * taps


def _with_axis(op: Any, at: int | None) -> Any:
    """The same windows with an axis of size-1 windows inserted at `at`."""
    assert at is not None
    neutral: dict[str, Any] = {"padding": (0, 0)}
    changes = {}
    for name in ("window_dimensions", "window_strides", "padding", "base_dilation",
                 "window_dilation"):
        values = getattr(op, name, None)
        if values is not None:
            changes[name] = (*values[:at], neutral.get(name, 1), *values[at:])
    return replace(op, **changes)


@dataclass(frozen=True)
class ReduceWindowSum(_ReduceWindow):
    """The sum of each window."""

    kind = "add"
    accepts = NUMERIC
    can_make_nan = True

    def tangent(self, x: Any, dx: Any) -> Any:
        return self(dx)

    def transpose(self, ct: Any, x: Any) -> Any:
        window, strides, padding, base, dilation = self.geometry()
        whole = tuple(n * w for n, w in zip(ct.shape, window, strict=True)) == tuple(x.shape)
        if whole and window == strides and not any(map(any, padding)) and {*base, *dilation} == {1}:
            # Non-overlapping windows: each number goes to all elements of its window.
            apart = tuple(m for n, w in zip(ct.shape, window, strict=True) for m in (n, w))
            spread = broadcast_in_dim(ct, apart, tuple(range(0, len(apart), 2)))
            return reshape(spread, x.shape)
        pads = transposed_padding(x.shape, window, strides, ct.shape, padding, base, dilation)
        return ReduceWindowSum(window, base, pads, strides, dilation)(ct)


class _Chooser(_ReduceWindow):
    """Max and min: the tangent is that of the selected element, the first among equals."""

    select: ClassVar[str]
    accepts = "biuf"

    def tangent(self, x: Any, dx: Any) -> Any:
        return SelectAndGatherAdd(self.select, *self.geometry())(dx, x)


@dataclass(frozen=True)
class ReduceWindowMax(_Chooser):
    """The largest element of each window."""

    kind = "max"
    select = "ge"


@dataclass(frozen=True)
class ReduceWindowMin(_Chooser):
    """The smallest element of each window."""

    kind = "min"
    select = "le"


@dataclass(frozen=True)
class ReduceWindowProd(_ReduceWindow):
    """Product of each window."""

    kind = "mul"
    accepts = NUMERIC
    can_make_nan = True

    def tangent(self, x: Any, dx: Any) -> Any:
        shape = arrays.window_output_shape(x.shape, *self.geometry())
        window, strides, padding, base, dilation = self.geometry()
        config = tuple((lo, hi, b - 1) for (lo, hi), b in zip(padding, base, strict=True))
        x, dx = pad(x, full_like(x, 1), config), pad(dx, full_like(dx, 0), config)
        if 0 in shape:
            return slice_(dx, (0,) * x.ndim, shape)
        value = change = None
        for taps in product(*map(range, window)):  # fold (p, dp)(q, dq) = (pq, p dq + q dp)
            starts = [t * d for t, d in zip(taps, dilation, strict=True)]
            limits = [a + (n - 1) * s + 1 for a, n, s in zip(starts, shape, strides, strict=True)]
            q, dq = slice_(x, starts, limits, strides), slice_(dx, starts, limits, strides)
            if value is None:
                value, change = q, dq
            else:
                value, change = mul.jvp((value, q), (change, dq))
        return change


@dataclass(frozen=True)
class ReduceWindowAnd(_ReduceWindow):
    """Bitwise and of each window."""

    kind = "and"
    accepts = INTEGRAL


@dataclass(frozen=True)
class ReduceWindowOr(_ReduceWindow):
    """Bitwise or of each window."""

    kind = "or"
    accepts = INTEGRAL


# --------------------------------------------------------------------------------------- selection


def _mapped_pair(
    op: Any, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]
) -> tuple[Any, Any]:
    """The `vmap` of both selections: the mapped axis comes first and has no window."""
    args = [bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True)]
    return _with_axis(op, 0)(*args), 0


@dataclass(frozen=True)
class SelectAndScatterAdd(Operation):
    """Add each source element at its window's largest ('ge') or smallest ('le') element."""

    select: str
    window_dimensions: Sizes
    window_strides: Sizes
    padding: Pairs
    kernel_family = "window"
    handles_zeros = True
    scatters: ClassVar[bool] = True
    divide = division.by_windows

    def geometry(self) -> tuple[Sizes, Sizes, Pairs, Sizes, Sizes]:
        ones = (1,) * len(self.window_dimensions)
        return self.window_dimensions, self.window_strides, self.padding, ones, ones

    def infer(self, source: Aval, operand: Aval) -> Aval:
        _check_window(self, [source, operand], self.geometry())
        shape = arrays.window_output_shape(operand.shape, *self.geometry())
        if source.shape != shape or source.dtype != operand.dtype:
            raise shape_error(
                self.name, f"a source of shape {shape} and the operand's dtype", [source, operand]
            )
        if dtypes.kind(operand.dtype) not in REAL:
            raise shape_error(self.name, "real operands", [source, operand])
        return Aval(operand.shape, operand.dtype, source.weak_type and operand.weak_type)

    def eager(self, xp: Any, source: Any, operand: Any) -> Any:
        return arrays.select_and_scatter_add(
            xp, source, operand, self.select, self.window_dimensions, self.window_strides,
            self.padding,
        )  # fmt: skip

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return _linear_in_first(self, primals, tangents)

    def transpose(self, ct: Any, source: Any, operand: Any) -> Any:
        return SelectAndGatherAdd(self.select, *self.geometry())(ct, operand), None

    vmap = _mapped_pair


@dataclass(frozen=True)
class SelectAndGatherAdd(Operation):
    """The tangent at the largest or smallest element of each window of the operand."""

    select: str
    window_dimensions: Sizes
    window_strides: Sizes
    padding: Pairs
    base_dilation: Sizes
    window_dilation: Sizes
    kernel_family = "window"
    handles_zeros = True
    scatters: ClassVar[bool] = False
    divide = division.by_windows

    geometry = _geometry

    def infer(self, tangents: Aval, operand: Aval) -> Aval:
        _check_window(self, [tangents, operand], self.geometry())
        if tangents.shape != operand.shape or tangents.dtype != operand.dtype:
            raise shape_error(
                self.name, "tangents of the operand's shape and dtype", [tangents, operand]
            )
        if dtypes.kind(operand.dtype) not in REAL:
            raise shape_error(self.name, "real operands", [tangents, operand])
        shape = arrays.window_output_shape(operand.shape, *self.geometry())
        return Aval(shape, operand.dtype, tangents.weak_type and operand.weak_type)

    def eager(self, xp: Any, tangents: Any, operand: Any) -> Any:
        return arrays.select_and_gather_add(xp, tangents, operand, self.select, *self.geometry())

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return _linear_in_first(self, primals, tangents)

    def transpose(self, ct: Any, tangents: Any, operand: Any) -> Any:
        if any(d != 1 for d in self.window_dilation):
            raise NotImplementedError(
                "VJP not implemented for select_and_gather (MaxPool) with window dilation, got "
                f"window_dilation={self.window_dilation} (needed 1 for every axis){here()}"
            )
        spread = any(b != 1 for b in self.base_dilation)
        if spread:  # the gaps between elements are never selected
            extreme = lowest if self.select == "ge" else highest
            config = tuple((0, 0, b - 1) for b in self.base_dilation)
            operand = pad(operand, full_like(operand, extreme(operand.dtype)), config)
        back = SelectAndScatterAdd(
            self.select, self.window_dimensions, self.window_strides, self.padding
        )
        out = back(ct, operand)
        if spread:
            out = slice_(out, (0,) * out.ndim, out.shape, self.base_dilation)
        return out, None

    vmap = _mapped_pair


def _linear_in_first(
    op: Operation, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """jvp of an operation linear in its first operand and piecewise constant in its second."""
    out = op(*primals)
    if tangents[0].__class__ is Zero:
        return out, Zero(out)
    return out, op(tangents[0], primals[1])
