"""Division of operations among the devices of a mesh, by family: rules for `Operation.divide`.

A rule gets the operation, the frame of the Program that is being divided (`parallel`), the operands
as values of that Program, and the avals of the results. It brings the operands into layouts under
which every device can compute its share alone, and gives the layouts and pending sums of the
results. For each axis, a layout contains the names of the mesh axes that divide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine import dtypes

Layout = tuple[tuple[Any, ...], ...]


def undivided(layout: Layout, axes: Sequence[int]) -> Layout:
    """A layout that does not divide some axes."""
    return tuple(() if i in axes else names for i, names in enumerate(layout))


def without_axes(layout: Layout, axes: Sequence[int]) -> Layout:
    """The layout of a result that does not have some of the axes."""
    return tuple(names for i, names in enumerate(layout) if i not in axes)


def is_unsummed(f: Any, ins: Sequence[Any], i: int) -> bool:
    """Whether an operand is a pending sum over devices, and is read only here."""
    return bool(ins[i].partial) and f.single[i]


def by_element(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """Every device computes its own elements."""
    (out,) = outs
    layout = f.common([v for v in ins if v.aval.shape == out.shape])
    args = [f.to(v, layout if v.aval.shape == out.shape else ()) for v in ins]
    return [f.placed(out, layout, op(*args))]


def linear_by_element(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The same for a linear function of one operand; pending sums are taken after the function."""
    (x,) = ins
    if is_unsummed(f, ins, 0):
        return [f.placed(outs[0], x.layout, op(x.value), x.partial)]
    value = op(f.natural(x))  # before the layout is read: taking sums may change it
    return [f.placed(outs[0], x.layout, value)]


def sum_by_element(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """x + y or x - y: a sum stays pending if both operands have it, or if the other one is 0."""
    x, y = ins
    unsummed = [is_unsummed(f, ins, i) for i in (0, 1)]
    if x.aval.shape == y.aval.shape:
        if all(unsummed) and x.partial == y.partial and x.layout == y.layout:
            return [f.placed(outs[0], x.layout, op(x.value, y.value), x.partial)]
        if unsummed[1] and x.zero:  # 0 + y
            return [f.placed(outs[0], y.layout, op(_zeros(f, x, y.layout), y.value), y.partial)]
        if unsummed[0] and y.zero:
            return [f.placed(outs[0], x.layout, op(x.value, _zeros(f, y, x.layout)), x.partial)]
    return by_element(op, f, ins, outs)


def _zeros(f: Any, zero: Any, layout: Layout) -> Any:
    """Zeros in a given layout, even if they count as a pending sum."""
    own = getattr(zero, "value", None)
    return own if own is not None and zero.layout == layout else f.to(zero, layout)


def scaled_by_element(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """x y or x / y: a pending sum is taken after scaling by a number."""
    (out,) = outs
    unsummed = [is_unsummed(f, ins, i) for i in (0, 1)]
    at = 0 if unsummed[0] else 1
    x, y = ins[at], ins[1 - at]
    scales = any(unsummed) and (at == 0 or op.name == "mul") and dtypes.is_inexact(out.dtype)
    if scales and x.aval.shape == out.shape and not y.partial and (
        not y.aval.shape or y.uniform
    ):
        args = [x.value, f.to(y, x.layout if y.aval.shape else ())]
        return [f.placed(out, x.layout, op(*(args if at == 0 else args[::-1])), x.partial)]
    return by_element(op, f, ins, outs)


def whole_along(axes: Sequence[int], op: Any, f: Any, ins: Sequence[Any],
                outs: Sequence[Any]) -> list[Any]:
    """An operation that needs all elements along some axes, which may be reduced away."""
    layout = undivided(f.common(ins), axes)
    found = op(*(f.to(v, layout) for v in ins))
    if outs[0].ndim < len(layout):
        layout = without_axes(layout, axes)
    return f.placed_all(op, outs, [layout] * len(outs), found)


def whole_along_axis(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """The same for the `axis` of an operation."""
    return whole_along([op.axis], op, f, ins, outs)


def by_windows(op: Any, f: Any, ins: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
    """Axes along which windows move, or that have windows larger than 1, are not divided."""
    dilations = [getattr(op, n, None) for n in ("base_dilation", "window_dilation")]
    moving = [
        i for i, size in enumerate(op.window_dimensions)
        if (size, op.window_strides[i], tuple(op.padding[i])) != (1, 1, (0, 0))
        or any(d is not None and d[i] != 1 for d in dilations)
    ]
    layout = undivided(f.common(ins), moving)
    return [f.placed(outs[0], layout, op(*(f.to(v, layout) for v in ins)))]


def by_labels(op: Any, labels: Sequence[Sequence[str]], f: Any, ins: Sequence[Any],
              outs: Sequence[Any]) -> list[Any]:
    """A sum of products: labels tell which axes of the operands and of the result are the same.

    A label that is divided in one operand only is divided in the other one too, by slicing. If two
    labels claim the same mesh axis, it goes to the label that comes first in the result (a batch
    before features); labels that are summed over come last. Axes labeled `_` are whole."""
    lhs, rhs, results = labels
    claims: dict[str, tuple[Any, ...]] = {}
    for text, v in ((lhs, ins[0]), (rhs, ins[1])):
        for label, names in zip(text, v.layout, strict=True):
            if label != "_" and f.parts(names) > f.parts(claims.get(label, ())):
                claims[label] = names
    used: set[Any] = set()
    for label in [*results, *(c for c in claims if c not in results)]:
        names = claims.get(label, ())
        taken = next((i for i, n in enumerate(names) if n in used), len(names))
        used |= set(names[:taken])
        if label in claims:
            claims[label] = names[:taken]
    args = [f.to(v, tuple(claims.get(c, ()) for c in text))
            for text, v in zip((lhs, rhs), ins, strict=True)]
    layout = tuple(claims.get(c, ()) for c in results)
    left = f.ordered([n for c, names in claims.items() if c not in results for n in names])
    return [f.placed(outs[0], layout, op(*args), left)]


class Claims:
    """Which mesh axes divide which axes of the operands; each mesh axis is used only once."""

    def __init__(self) -> None:
        self.used: set[Any] = set()

    def take(self, *candidates: tuple[Any, ...]) -> tuple[Any, ...]:
        """The first entry that divides anything and is still unused."""
        for names in candidates:
            if names and not self.used & set(names):
                self.used |= set(names)
                return names
        return ()
