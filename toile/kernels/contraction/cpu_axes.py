"""Contractions on the CPU: the dtypes that kernels compute with, groups of axes, and copies.

An operand is copied if its summed axes do not merge, or if its rows merge only in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from toile.compiler.ir.operands import Operand, Ref
from toile.engine.records import dataclass
from toile.kernels.contraction.cpu_instructions import SINGLE, Grouping
from toile.kernels.contraction.shared import (
    Axis,
    Copies,
    Labels,
    cheapest_order,
    copied,
    labels_of,
    merge,
)
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm.product_types import Element, element, work_element

SHORT = 32  # shorter row axes are worth a copy that merges them
PACKS = 6  # elements that are packed in the time that copying one takes
ROUTINES = {
    "float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm",
}  # fmt: skip


@dataclass(frozen=True)
class Types:
    """The stored types of a, b and c, the type of sums, the BLAS `routine`, and groups of terms."""

    a: Element | None
    b: Element | None
    c: Element | None
    work: Element | None
    routine: str | None
    grouping: Grouping = SINGLE


def element_types(x: Any, y: Any, out: Any) -> Types | None:
    """The types that a contraction computes with; None if only NumPy supports it."""
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


@dataclass(frozen=True)
class Problem:
    """A contraction as groups of axes, each group merged and sorted, outermost first."""

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
        """The transpose: C = A B as C^T = B^T A^T."""
        t = self.types
        batch, rows, columns, summed = (
            tuple(axis.mirrored for axis in axes)
            for axes in (self.batch, self.columns, self.rows, self.summed)
        )
        return Problem(self.b, self.a, self.c, batch, rows, columns, summed,
                       replace(t, a=t.b, b=t.a))


def by_stride(axes: Sequence[Axis], side: str) -> list[Axis]:
    """Sorted by the stride of one operand, largest first."""
    return sorted(axes, key=lambda axis: -abs(getattr(axis, side)))


def total(axes: Sequence[Axis]) -> int:
    """The number of indices of all axes together."""
    return prod(axis.extent for axis in axes)


def arrange(op: DotGeneral, x: Operand, y: Operand, out: Operand, types: Types, plan: Copies,
            compact: bool = False) -> Problem:
    """The contraction as groups of merged axes; copies operands if that pays.

    With `compact`, both are copied, whatever their strides."""
    found = labels_of(op, x, y, out)
    copy_x = copy_y = compact
    order = found.by(found.summed, "a")
    if len(merge(found.of(order))) > 1:
        apart, order = cheapest_order(found, x, y)
        if found.rows and found.columns:  # dots and sweeps need no merged sums
            copy_x, copy_y = copy_x or apart[0], copy_y or apart[1]
    if found.rows and found.columns and found.summed:
        copy_x = copy_x or _scattered(found, found.rows, found.columns)
        copy_y = copy_y or _scattered(found, found.columns, found.rows)
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


def _scattered(found: Labels, labels: Sequence[str], others: Sequence[str]) -> bool:
    """Whether an operand's axes would merge into much longer ones if only C's strides counted.

    Without a copy the other operand is packed for each run of rows: as many elements as C has in
    those rows, at about a sixth of the cost of copying one."""
    ordered = found.of(found.by(labels, "c"))
    longest = max(x.extent for x in merge(ordered))
    if max(x.extent for x in merge(ordered, "c")) < 2 * longest:
        return False
    return longest < SHORT or (not found.batch and total(found.of(others)) > PACKS * longest)
