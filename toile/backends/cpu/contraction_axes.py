"""A contraction by labels as loops: groups of axes with a stride for each operand.

Neighbouring axes whose strides agree are merged. An operand is copied only when its summed axes
lie apart, or many short row axes that are one in C do. Knows the dtypes that kernels compute with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from toile.backends.cpu.launches import Operand, Planner, Ref
from toile.backends.cpu.product_types import Element, element, work_element
from toile.primitives.contractions import DotGeneral

SHORT = 32  # row axes shorter than this are worth a copy that merges them
PACKS = 6  # elements that are packed in the time one is copied
ROUTINES = {
    "float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm",
}  # fmt: skip


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
class Types:
    """The stored types of a, b and c and the one sums are formed in; `routine` of BLAS."""

    a: Element | None
    b: Element | None
    c: Element | None
    work: Element | None
    routine: str | None


@dataclass(frozen=True)
class Problem:
    """A contraction by groups of axes, each group merged and sorted, outermost first."""

    a: Ref
    b: Ref
    c: Ref
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    summed: tuple[Axis, ...]
    types: Types

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


def element_types(x: Any, y: Any, out: Any) -> Types | None:
    """The types a contraction computes with; None where only NumPy knows how."""
    same = x == y == out
    routine = ROUTINES.get(out.name) if same else None
    a, b, c, work = element(x), element(y), element(out), work_element(out)
    if c is None:
        return Types(None, None, None, None, routine) if routine else None
    if a is None or b is None:
        return None
    if c.kind == "b" and not same:
        return None
    if c.kind in "iu" and (a.kind in "fh" or b.kind in "fh"):
        return None
    return Types(a, b, c, work, routine)


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


def arrange(op: DotGeneral, x: Operand, y: Operand, out: Operand, types: Types, plan: Planner,
            compact: bool = False) -> Problem:
    """The contraction as groups of merged axes; copies operands whose axes do not merge.

    `compact` copies both whatever their strides are."""
    found = _labels(op, x, y, out)
    copy_x = copy_y = compact
    order = found.by(found.summed, "a")
    if len(merge(found.of(order))) > 1:
        costs = []
        for candidate in (order, found.by(found.summed, "b")):
            apart = [len(merge(found.of(candidate), side)) > 1 for side in "ab"]
            costs.append((apart[0] * x.size + apart[1] * y.size, apart, candidate))
        _, apart, order = min(costs, key=lambda c: c[0])
        if found.rows and found.columns:  # dots and sweeps need no merged sums
            copy_x, copy_y = copy_x or apart[0], copy_y or apart[1]
    if found.rows and found.columns and found.summed:
        copy_x = copy_x or _scattered(found, found.rows, found.columns)
        copy_y = copy_y or _scattered(found, found.columns, found.rows)
    if copy_x:
        op, x = _copied(op, "lhs", x, order, plan)
    if copy_y:
        op, y = _copied(op, "rhs", y, order, plan)
    found = _labels(op, x, y, out)
    merged = {
        name: tuple(merge(found.of(found.by(labels, "c"))))
        for name, labels in (("batch", found.batch), ("rows", found.rows),
                             ("columns", found.columns))
    }
    summed = tuple(merge(found.of(order)))
    return Problem(x.ref, y.ref, out.ref, summed=summed, types=types, **merged)


def _labels(op: DotGeneral, x: Operand, y: Operand, out: Operand) -> Labels:
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


def _scattered(found: Labels, labels: Sequence[str], others: Sequence[str]) -> bool:
    """Whether an operand's axes merge in C alone, into much longer ones than they are.

    Without a copy the other operand is packed for each run of rows: as many elements as C has in
    those rows, at about a sixth of the cost of copying one."""
    ordered = found.of(found.by(labels, "c"))
    longest = max(x.extent for x in merge(ordered))
    if max(x.extent for x in merge(ordered, "c")) < 2 * longest:
        return False
    return longest < SHORT or (not found.batch and total(found.of(others)) > PACKS * longest)


def _copied(op: DotGeneral, side: str, x: Operand, summed: list[str], plan: Planner
            ) -> tuple[DotGeneral, Operand]:
    """An operand with its axes in the order of C, the summed ones last."""
    labels = getattr(op, side)
    free = [c for c in op.out if c in labels]
    order = free + [c for c in labels if c not in op.out and c not in summed] + summed
    axes = [labels.index(c) for c in order]
    view = x._replace(shape=tuple(x.shape[i] for i in axes),
                      strides=tuple(x.strides[i] for i in axes))
    return replace(op, **{side: "".join(order)}), plan.contiguous(view)
