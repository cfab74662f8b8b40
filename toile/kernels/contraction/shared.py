"""A contraction as loops: groups of labeled axes with a stride for each operand.

Adjacent axes whose strides agree are merged, so that most contractions are one matrix product or a
batch of them, whatever the order of their axes. Both backends lower contractions from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from toile.compiler.ir.geometry import dense, permuted
from toile.compiler.ir.operands import Operand, Ref
from toile.primitives.contractions import DotGeneral


class Copies(Protocol):
    """The methods of a plan that arranging axes needs."""

    def contiguous(self, x: Operand) -> Operand:
        """`x`, or a copy of it in row-major order without gaps."""


class CopiesNotMade:
    """Used instead of a plan: says what copies would look like, without making them."""

    def contiguous(self, x: Operand) -> Operand:
        return x if x.contiguous else dense(Ref(None), x.shape, x.dtype)


class Axis(NamedTuple):
    """One loop: its extent and the strides of a, b and c along it."""

    extent: int
    a: int
    b: int
    c: int

    @property
    def mirrored(self) -> Axis:
        return Axis(self.extent, self.b, self.a, self.c)


class Labels(NamedTuple):
    """The axes of more than one element, and the role of each label."""

    axes: dict[str, Axis]
    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]

    def by(self, labels: Sequence[str], side: str) -> list[str]:
        """Sorted by the stride of one operand, largest first."""
        return sorted(labels, key=lambda c: -abs(getattr(self.axes[c], side)))

    def of(self, labels: Sequence[str]) -> list[Axis]:
        return [self.axes[c] for c in labels]


def cheapest_order(found: Labels, x: Operand, y: Operand) -> tuple[list[bool], list[str]]:
    """Which operands to copy, and the order of summed labels with the fewest elements to copy."""
    costs = []
    for candidate in (found.by(found.summed, "a"), found.by(found.summed, "b")):
        apart = [len(merge(found.of(candidate), side)) > 1 for side in "ab"]
        costs.append((apart[0] * x.size + apart[1] * y.size, apart, candidate))
    _, apart, order = min(costs, key=lambda c: c[0])
    return apart, order


def labels_of(op: DotGeneral, x: Operand, y: Operand, out: Operand) -> Labels:
    """The roles of a contraction's labels, without those of extent 1."""
    a, b, c = (dict(zip(labels, operand.strides, strict=True)) for labels, operand in (
        (op.lhs, x), (op.rhs, y), (op.out, out)))
    sizes = dict(zip(op.lhs + op.rhs, x.shape + y.shape, strict=True))
    found = Labels({}, [], [], [], [])
    for label, n in sizes.items():
        if n == 1:
            continue
        found.axes[label] = Axis(n, a.get(label, 0), b.get(label, 0), c.get(label, 0))
        group = (found.summed if label not in c else found.batch if label in a and label in b else
                 found.rows if label in a else found.columns)
        group.append(label)
    return found


def merge(axes: Sequence[Axis], sides: Sequence[str] = "abc") -> list[Axis]:
    """Merge neighbors if the outer stride equals the extent of the inner axis times its stride."""
    out: list[Axis] = []
    for axis in axes:
        if out and all(getattr(out[-1], s) == getattr(axis, s) * axis.extent for s in sides):
            out[-1] = axis._replace(extent=out[-1].extent * axis.extent)
        else:
            out.append(axis)
    return out


def copied(op: DotGeneral, side: str, x: Operand, summed: Sequence[str], plan: Copies
           ) -> tuple[DotGeneral, Operand]:
    """An operand with its axes in the order of C, the summed ones last; copied if need be."""
    labels = getattr(op, side)
    free = [c for c in op.out if c in labels]
    order = free + [c for c in labels if c not in op.out and c not in summed] + list(summed)
    axes = [labels.index(c) for c in order]
    changed = replace(op, **{side: "".join(order)})
    return changed, plan.contiguous(permuted(x, axes))


def leading(one: Axis, other: Axis, side: str) -> tuple[int, bool] | None:
    """The leading dimension of a matrix: the stride of its rows, or (True) of its columns.

    None if it has unit stride along neither."""
    m, row, n, column = one.extent, getattr(one, side), other.extent, getattr(other, side)
    if (column == 1 or n == 1) and (m == 1 or row >= n):
        return (max(n, 1) if m == 1 else row), False
    if (row == 1 or m == 1) and (n == 1 or column >= m):
        return (max(m, 1) if n == 1 else column), True
    return None
