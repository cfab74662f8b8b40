"""How each operation is divided: from its operands' layouts to its results'.

A rule takes the frame, the operation, its operands as values of a divided Program and the avals of
its results; it brings the operands into layouts under which every device can do its share alone,
and says how the results lie and which sums are left. Operations without a rule gather their
operands. May import control and below.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.parallel.partition_values import Frame, Names, Placed, Spread, Value, whole
from toile.parallel.placing import Constraint
from toile.parallel.specs import UNCONSTRAINED, axes_of
from toile.parallel.spmd import Layout
from toile.primitives.barriers import StopGradient
from toile.primitives.choices import ConvertElementType, SelectN, convert
from toile.primitives.collectives import AllReduce
from toile.primitives.complexes import Complex, Conj, Imag, Real
from toile.primitives.contractions import DotGeneral
from toile.primitives.conv import ConvGeneralDilated
from toile.primitives.cumulative import Cumlogsumexp, Cummax, Cummin, Cumprod, Cumsum
from toile.primitives.elementwise import Div
from toile.primitives.families import (
    Add,
    BroadcastInDim,
    Elementwise,
    Identity,
    Mul,
    Neg,
    ReduceSum,
    Reshape,
    Sub,
    Transpose,
    add,
    broadcast_in_dim,
    mul,
    reshape,
    scalar,
)
from toile.primitives.reductions import ReduceAnd, ReduceMax, ReduceMin, ReduceOr, ReduceProd
from toile.primitives.shapes import (
    BitcastConvertType,
    Concatenate,
    Iota,
    OptimizationBarrier,
    Pad,
    ReducePrecision,
    Rev,
    Slice,
    iota,
)
from toile.primitives.sorting import Argmax, Argmin, Sort, TopK
from toile.primitives.windows import (
    ReduceWindowAnd,
    ReduceWindowMax,
    ReduceWindowMin,
    ReduceWindowOr,
    ReduceWindowProd,
    ReduceWindowSum,
    SelectAndGatherAdd,
    SelectAndScatterAdd,
)

Rule = Callable[[Frame, Any, Sequence[Value], Sequence[Aval]], list[Value]]
RULES: dict[type, Rule] = {}


def rule(*kinds: type) -> Callable[[Rule], Rule]:
    """Make a function the rule of operations and of what derives from them."""

    def register(function: Rule) -> Rule:
        RULES.update((kind, function) for kind in kinds)
        return function

    return register


def rule_for(op: Any) -> Rule:
    """The rule of an operation; the one that gathers if it has none."""
    return next((RULES[kind] for kind in type(op).__mro__ if kind in RULES), gathering)


def gathering(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    """Any operation: every device takes whole operands and computes whole results."""
    found = op(*(f.to(v, whole(v.aval.ndim)) for v in ins))
    results = found if op.multiple else [found]
    return [Placed(a, whole(a.ndim), x) for a, x in zip(outs, results, strict=True)]


def undivided(layout: Layout, axes: Sequence[int]) -> Layout:
    """A layout that does not divide some axes."""
    return tuple(() if i in axes else names for i, names in enumerate(layout))


# ------------------------------------------------------------------------------------- elementwise


@rule(Elementwise, SelectN, ConvertElementType, Complex, Real, Imag, Conj, ReducePrecision,
      StopGradient)
def elementwise(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (out,) = outs
    unsummed = _before_the_sum(f, op, ins, out)
    if unsummed is not None:
        return [unsummed]
    layout = f.common([v for v in ins if v.aval.shape == out.shape])
    args = [f.to(v, layout if v.aval.shape == out.shape else ()) for v in ins]
    return [Placed(out, layout, op(*args))]


def _before_the_sum(f: Frame, op: Any, ins: Sequence[Value], out: Aval) -> Value | None:
    """What is linear is done before sums are taken, if that makes them no more."""
    loose = [isinstance(v, Placed) and bool(v.partial) and f.single[i] for i, v in enumerate(ins)]
    if not any(loose):
        return None
    kind = op.__class__
    if kind is Neg:
        return _like(ins[0], out, op(ins[0].value))  # type: ignore[union-attr]
    if kind in (Add, Sub):
        x, y = ins
        if x.aval.shape != y.aval.shape:
            return None
        if all(loose) and x.partial == y.partial and x.layout == y.layout:
            return _like(x, out, op(x.value, y.value))  # type: ignore[union-attr]
        if loose[1] and x.zero:  # 0 + y
            return _like(y, out, op(_part(f, x, y.layout), y.value))  # type: ignore[union-attr]
        if loose[0] and y.zero:
            return _like(x, out, op(x.value, _part(f, y, x.layout)))  # type: ignore[union-attr]
        return None
    if kind in (Mul, Div) and dtypes.is_inexact(out.dtype):
        at = 0 if loose[0] else 1
        x, y = ins[at], ins[1 - at]
        fits = x.aval.shape == out.shape and (not y.aval.shape or y.uniform) and not y.partial
        if fits and (kind is Mul or at == 0):
            other = f.to(y, x.layout if y.aval.shape else ())
            args = (x.value, other) if at == 0 else (other, x.value)  # type: ignore[union-attr]
            return _like(x, out, op(*args))
    return None


def _like(x: Value, out: Aval, value: Any) -> Placed:
    """A result that lies as an operand does, with the same sums to be taken."""
    return Placed(out, x.layout, value, x.partial)


def _part(f: Frame, zero: Value, layout: Layout) -> Any:
    """Zeros, also where they count as a sum to be taken."""
    if isinstance(zero, Placed) and zero.layout == layout:
        return zero.value
    return f.to(zero, layout)


@rule(Identity)
def identity(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,) = ins
    if isinstance(x, Placed) and x.partial and f.single[0]:
        return [_like(x, outs[0], op(x.value))]
    value = op(f.natural(x))  # before the layout is read: taking sums may change it
    return [Placed(outs[0], x.layout, value)]


@rule(OptimizationBarrier)
def barrier(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    found = op(*[f.natural(v) for v in ins])
    results = found if op.multiple else [found]
    return [Placed(a, v.layout, x) for a, v, x in zip(outs, ins, results, strict=True)]


@rule(BitcastConvertType)
def bitcast(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    if ins[0].aval.shape != outs[0].shape:
        return gathering(f, op, ins, outs)
    return elementwise(f, op, ins, outs)


@rule(Constraint)
def constraint(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,) = ins
    entries = list(op.sharding.spec) + [None] * (x.aval.ndim - len(op.sharding.spec))
    named = {n for e in entries for n in axes_of(e)}
    layout = tuple(
        tuple(n for n in own if n not in named) if e is UNCONSTRAINED else axes_of(e)
        for e, own in zip(entries, x.layout, strict=True)
    )
    before, f.equation = f.equation, None  # asked for: nothing to point out
    count = len(f.notes)
    value = f.to(x, layout)
    del f.notes[count:]
    f.equation = before
    return [Placed(outs[0], layout, value)]


# ------------------------------------------------------------------------------------------ shapes


@rule(BroadcastInDim)
def broadcast(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,), (out,) = ins, outs
    stretched = {i for i, d in enumerate(op.dims) if x.aval.shape[i] != op.shape[d]}
    x_layout = undivided(x.layout, tuple(stretched))
    layout = [()] * out.ndim
    for i, d in enumerate(op.dims):
        layout[d] = x_layout[i]  # type: ignore[call-overload]

    def make(wanted: Layout) -> Any:
        own = tuple(() if i in stretched else wanted[d] for i, d in enumerate(op.dims))
        return broadcast_in_dim(f.to(x, own), f.local(op.shape, wanted), op.dims)

    uniform = not x.aval.shape
    zero = uniform and isinstance(x, Placed) and _is_zero(x.value)
    return [Spread(out, tuple(layout), make, zero, uniform)]


def _is_zero(x: Any) -> bool:
    data = getattr(x, "_data", None)
    return isinstance(data, np.ndarray) and not data.shape and bool(data == 0)


@rule(Iota)
def counting(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (out,) = outs

    def make(wanted: Layout) -> Any:
        shape, names = f.local(op.shape, wanted), wanted[op.axis]
        found = iota(op.dtype, shape, op.axis)
        if f.parts(names) == 1:
            return found
        start = mul(f.index(names), scalar(shape[op.axis], np.int32))
        return add(found, convert(start, op.dtype))

    return [Spread(out, whole(out.ndim), make)]


@rule(Transpose)
def transposed(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,) = ins
    keeps = isinstance(x, Placed) and x.partial and f.single[0]
    value = x.value if keeps else f.natural(x)  # type: ignore[union-attr]
    layout = tuple(x.layout[p] for p in op.perm)
    return [Placed(outs[0], layout, op(value), x.partial if keeps else ())]


@rule(Reshape)
def reshaped(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,), (out,) = ins, outs
    before, after = _through_reshape(f, x.aval.shape, out.shape, x.layout)
    keeps = isinstance(x, Placed) and x.partial and f.single[0] and x.layout == before
    value = x.value if keeps else f.to(x, before)  # type: ignore[union-attr]
    partial = x.partial if keeps else ()
    return [Placed(out, after, reshape(value, f.local(out.shape, after)), partial)]


def _through_reshape(
    f: Frame, shape: Sequence[int], new: Sequence[int], layout: Layout
) -> tuple[Layout, Layout]:
    """The part of a layout that a reshape keeps, before and after it.

    Axes are taken in groups of equal products. A group counts its elements in row-major order, so
    what divides it has to divide its first axis, or the next one where all before have size 1 on
    each device."""
    before: list[Names] = [()] * len(shape)
    after: list[Names] = [()] * len(new)
    for ins, outs in _groups(shape, new):
        names: list[tuple[int, Any]] = []
        for i in ins:
            names += [(i, n) for n in layout[i]]
            if f.parts(layout[i]) != shape[i]:
                break
        k = 0
        for o in outs:
            while k < len(names) and new[o] % (f.parts(after[o]) * f.sizes[names[k][1]]) == 0:
                i, n = names[k]
                before[i], after[o] = (*before[i], n), (*after[o], n)
                k += 1
            if f.parts(after[o]) != new[o]:
                break
    return tuple(before), tuple(after)


def _groups(a: Sequence[int], b: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The smallest runs of axes of two shapes that have equal numbers of elements."""
    found: list[tuple[list[int], list[int]]] = []
    if 0 in a:
        return found
    i = j = 0
    while i < len(a) and j < len(b):
        ins, outs, m, n = [i], [j], a[i], b[j]
        i, j = i + 1, j + 1
        while m != n:
            if m < n:
                ins.append(i)
                m, i = m * a[i], i + 1
            else:
                outs.append(j)
                n, j = n * b[j], j + 1
        found.append((ins, outs))
    return found


@rule(Slice)
def sliced(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,) = ins
    cut = [i for i, n in enumerate(x.aval.shape)
           if (op.starts[i], op.limits[i], op.strides[i]) != (0, n, 1)]
    layout = undivided(x.layout, cut)
    part = f.to(x, layout)
    limits = tuple(n if i in cut else part.shape[i] for i, n in enumerate(op.limits))
    return [Placed(outs[0], layout, Slice(op.starts, limits, op.strides)(part))]


@rule(Pad)
def padded(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    x, fill = ins
    layout = undivided(x.layout, [i for i, c in enumerate(op.config) if c != (0, 0, 0)])
    return [Placed(outs[0], layout, op(f.to(x, layout), f.to(fill, ())))]


@rule(Concatenate)
def concatenated(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    layout = undivided(f.common(ins), [op.axis])
    return [Placed(outs[0], layout, op(*(f.to(v, layout) for v in ins)))]


@rule(Rev)
def reversed_(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    layout = undivided(ins[0].layout, op.axes)
    return [Placed(outs[0], layout, op(f.to(ins[0], layout)))]


# -------------------------------------------------------------------- reductions, along one axis


@rule(ReduceSum)
def summed(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,), (out,) = ins, outs
    keeps = isinstance(x, Placed) and bool(x.partial) and f.single[0]
    value = x.value if keeps else f.natural(x)  # type: ignore[union-attr]
    layout = tuple(names for i, names in enumerate(x.layout) if i not in op.axes)
    left = [n for i in op.axes for n in x.layout[i]] + list(x.partial if keeps else ())
    names = f.ordered(left)
    value = op(value)
    if out.dtype == np.bool_ and names:
        return [Placed(out, layout, AllReduce("max", names)(value))]
    return [Placed(out, layout, value, names)]


_EXTREMES = {ReduceMax: "max", ReduceMin: "min", ReduceOr: "max", ReduceAnd: "min"}


@rule(*_EXTREMES)
def extreme(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    (x,), (out,) = ins, outs
    if op.__class__ in (ReduceOr, ReduceAnd) and out.dtype != np.bool_:  # of bits
        return along(f, op, ins, outs)
    value = op(f.natural(x))
    layout = tuple(names for i, names in enumerate(x.layout) if i not in op.axes)
    names = f.ordered([n for i in op.axes for n in x.layout[i]])
    if names:
        value = AllReduce(_EXTREMES[op.__class__], names)(value)
    return [Placed(out, layout, value)]


def _axes_along(op: Any) -> tuple[int, ...]:
    """The axes along which an operation needs all elements."""
    if hasattr(op, "axes"):
        return op.axes
    return (op.dimension if isinstance(op, Sort) else op.axis,)


@rule(ReduceProd, Argmax, Argmin, Cumsum, Cumprod, Cummax, Cummin, Cumlogsumexp, Sort, TopK)
def along(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    axes = _axes_along(op)
    layout = undivided(f.common(ins), axes)
    found = op(*(f.to(v, layout) for v in ins))
    results = found if op.multiple else [found]
    if outs[0].ndim < len(layout):  # they leave the shape
        layout = tuple(names for i, names in enumerate(layout) if i not in axes)
    return [Placed(a, layout, x) for a, x in zip(outs, results, strict=True)]


@rule(ReduceWindowSum, ReduceWindowMax, ReduceWindowMin, ReduceWindowProd, ReduceWindowAnd,
      ReduceWindowOr, SelectAndScatterAdd, SelectAndGatherAdd)
def windows(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    dilations = [getattr(op, n, None) for n in ("base_dilation", "window_dilation")]
    moving = [
        i for i, size in enumerate(op.window_dimensions)
        if (size, op.window_strides[i], tuple(op.padding[i])) != (1, 1, (0, 0))
        or any(d is not None and d[i] != 1 for d in dilations)
    ]
    layout = undivided(f.common(ins), moving)
    return [Placed(outs[0], layout, op(*(f.to(v, layout) for v in ins)))]


# ------------------------------------------------------------------------------------ contractions


@rule(DotGeneral)
def contracted(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    return _by_labels(f, op, (op.lhs, op.rhs, op.out), ins, outs[0])


@rule(ConvGeneralDilated)
def convolved(f: Frame, op: Any, ins: Sequence[Value], outs: Sequence[Aval]) -> list[Value]:
    numbers, groups = op.dimension_numbers, op.feature_group_count
    if op.batch_group_count != 1:
        return gathering(f, op, ins, outs)
    # Axes of space are whole; those of features too where they are in groups.
    labels = [["_"] * outs[0].ndim for _ in range(3)]
    labels[0][numbers.lhs_spec[0]] = labels[2][numbers.out_spec[0]] = "b"
    if groups == 1:
        labels[0][numbers.lhs_spec[1]] = labels[1][numbers.rhs_spec[1]] = "i"
        labels[1][numbers.rhs_spec[0]] = labels[2][numbers.out_spec[1]] = "o"
    return _by_labels(f, op, tuple("".join(x) for x in labels), ins, outs[0])


def _by_labels(
    f: Frame, op: Any, labels: tuple[str, ...], ins: Sequence[Value], out: Aval
) -> list[Value]:
    """A sum of products: labels tell which axes of the operands and of the result are one.

    A label that only one operand has divided is divided in the other one too, by cutting. A mesh
    axis that two labels claim goes to the one that comes first in the result (a batch before
    features), before those that are summed over."""
    lhs, rhs, results = labels
    claims: dict[str, Names] = {}
    for text, v in ((lhs, ins[0]), (rhs, ins[1])):
        for label, names in zip(text, v.layout, strict=True):
            if label != "_" and f.parts(names) > f.parts(claims.get(label, ())):
                claims[label] = names
    used: set[Any] = set()
    for label in [*results, *(c for c in claims if c not in results)]:
        kept: Names = ()
        for n in claims.get(label, ()):
            if n in used:
                break
            kept = (*kept, n)
        if label in claims:
            claims[label] = kept
            used |= set(kept)
    args = [f.to(v, tuple(claims.get(c, ()) for c in text))
            for text, v in zip((lhs, rhs), ins, strict=True)]
    layout = tuple(claims.get(c, ()) for c in results)
    left = f.ordered([n for c, names in claims.items() if c not in results for n in names])
    return [Placed(out, layout, op(*args), left)]


__all__ = ["RULES", "gathering", "rule", "rule_for", "undivided"]
