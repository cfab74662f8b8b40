"""A contraction by labels as loops: groups of axes with a stride for each operand.

Neighbouring axes whose strides agree are merged, so that most contractions are one matrix product
or a batch of them, whatever the order of their axes. `arrange` copies an operand where its summed
axes lie apart, and where the backend says that a copy is worth it. Both backends lower
contractions from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple, Protocol

from toile.compiler.ir.operands import Operand, Ref
from toile.engine.records import dataclass
from toile.primitives.contractions import DotGeneral


class Copies(Protocol):
    """What arranging needs of a plan."""

    def contiguous(self, x: Operand) -> Operand:
        """`x`, or a copy of it in row-major order without gaps."""


class Axis(NamedTuple):
    """One loop: its extent and the strides of a, b and c along it."""

    extent: int
    a: int
    b: int
    c: int

    @property
    def mirrored(self) -> Axis:
        return Axis(self.extent, self.b, self.a, self.c)


@dataclass(frozen=True)
class Problem:
    """A contraction by groups of axes, each group merged and sorted, outermost first.

    `types` is the backend's: a dataclass with the types of `a` and `b` among its fields."""

    a: Ref
    b: Ref
    c: Ref
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    types: Any

    @property
    def mirrored(self) -> Problem:
        """C = A B seen as its transpose, B^T A^T."""
        t = self.types
        batch, rows, columns, summed = (
            tuple(axis.mirrored for axis in axes)
            for axes in (self.batch, self.columns, self.rows, self.summed)
        )
        return Problem(self.b, self.a, self.c, batch, rows, columns, summed,
                       replace(t, a=t.b, b=t.a))


class Labels(NamedTuple):
    """The axes of more than one element, and what each label does."""

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


# Whether an operand's free axes (the first list; the second: the other operand's) want a copy.
Scattered = Callable[[Labels, Sequence[str], Sequence[str]], bool]


def arrange(op: DotGeneral, x: Operand, y: Operand, out: Operand, types: Any, plan: Copies,
            compact: bool = False, scattered: Scattered | None = None) -> Problem:
    """The contraction as groups of merged axes; copies operands whose axes do not merge.

    `compact` copies both whatever their strides are."""
    found = labels_of(op, x, y, out)
    copy_x = copy_y = compact
    order = found.by(found.summed, "a")
    if len(merge(found.of(order))) > 1:
        apart, order = cheapest_order(found, x, y)
        if found.rows and found.columns:  # dots and sweeps need no merged sums
            copy_x, copy_y = copy_x or apart[0], copy_y or apart[1]
    if scattered is not None and found.rows and found.columns and found.summed:
        copy_x = copy_x or scattered(found, found.rows, found.columns)
        copy_y = copy_y or scattered(found, found.columns, found.rows)
    if copy_x:
        op, x = copied(op, "lhs", x, order, plan)
    if copy_y:
        op, y = copied(op, "rhs", y, order, plan)
    found = labels_of(op, x, y, out)
    merged = {
        name: tuple(merge(found.of(found.by(labels, "c"))))
        for name, labels in (("batch", found.batch), ("rows", found.rows),
                             ("columns", found.columns))
    }
    summed = tuple(merge(found.of(order)))
    return Problem(x.ref, y.ref, out.ref, summed=summed, types=types, **merged)


def cheapest_order(found: Labels, x: Operand, y: Operand) -> tuple[list[bool], list[str]]:
    """The order of the summed labels that leaves least to copy, and which operands those are."""
    costs = []
    for candidate in (found.by(found.summed, "a"), found.by(found.summed, "b")):
        apart = [len(merge(found.of(candidate), side)) > 1 for side in "ab"]
        costs.append((apart[0] * x.size + apart[1] * y.size, apart, candidate))
    _, apart, order = min(costs, key=lambda c: c[0])
    return apart, order


def labels_of(op: DotGeneral, x: Operand, y: Operand, out: Operand) -> Labels:
    """What the labels of a contraction do, those of extent 1 left out."""
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


def by_stride(axes: Sequence[Axis], side: str) -> list[Axis]:
    """Sorted by the stride of one operand, largest first."""
    return sorted(axes, key=lambda axis: -abs(getattr(axis, side)))


def total(axes: Sequence[Axis]) -> int:
    """How many indices the axes have together."""
    return prod(axis.extent for axis in axes)


def merge(axes: Sequence[Axis], sides: Sequence[str] = "abc") -> list[Axis]:
    """Neighbours become one where the outer stride is a whole pass over the inner axis."""
    out: list[Axis] = []
    for axis in axes:
        if out and all(getattr(out[-1], s) == getattr(axis, s) * axis.extent for s in sides):
            out[-1] = axis._replace(extent=out[-1].extent * axis.extent)
        else:
            out.append(axis)
    return out


def copied(op: DotGeneral, side: str, x: Operand, summed: Sequence[str], plan: Copies
           ) -> tuple[DotGeneral, Operand]:
    """An operand with its axes in the order of C, the summed ones last."""
    labels = getattr(op, side)
    free = [c for c in op.out if c in labels]
    order = free + [c for c in labels if c not in op.out and c not in summed] + list(summed)
    axes = [labels.index(c) for c in order]
    view = x._replace(shape=tuple(x.shape[i] for i in axes),
                      strides=tuple(x.strides[i] for i in axes))
    changed = replace(op, lhs="".join(order)) if side == "lhs" else replace(op, rhs="".join(order))
    return changed, plan.contiguous(view)
