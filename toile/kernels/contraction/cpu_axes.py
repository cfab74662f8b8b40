"""Contractions on the CPU: the dtypes that kernels compute with, and when a copy is worth it.

How a contraction becomes groups of axes is in `axes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.compiler.ir.operands import Operand
from toile.engine.records import dataclass
from toile.kernels.contraction import axes as contraction_axes
from toile.kernels.contraction.axes import Labels, Problem, merge, total
from toile.primitives.contractions import DotGeneral
from toile.targets.llvm.launches import Planner
from toile.targets.llvm.product_types import Element, element, work_element

SHORT = 32  # row axes shorter than this are worth a copy that merges them
PACKS = 6  # elements that are packed in the time one is copied
ROUTINES = {
    "float32": "sgemm", "float64": "dgemm", "complex64": "cgemm", "complex128": "zgemm",
}  # fmt: skip


@dataclass(frozen=True)
class Types:
    """The stored types of a, b and c and the one sums are formed in; `routine` of BLAS."""

    a: Element | None
    b: Element | None
    c: Element | None
    work: Element | None
    routine: str | None


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


def arrange(op: DotGeneral, x: Operand, y: Operand, out: Operand, types: Types, plan: Planner,
            compact: bool = False) -> Problem:
    """The contraction as groups of merged axes; copies operands where that is worth it.

    `compact` copies both whatever their strides are."""
    return contraction_axes.arrange(op, x, y, out, types, plan, compact, _scattered)


def _scattered(found: Labels, labels: Sequence[str], others: Sequence[str]) -> bool:
    """Whether an operand's axes merge in C alone, into much longer ones than they are.

    Without a copy the other operand is packed for each run of rows: as many elements as C has in
    those rows, at about a sixth of the cost of copying one."""
    ordered = found.of(found.by(labels, "c"))
    longest = max(x.extent for x in merge(ordered))
    if max(x.extent for x in merge(ordered, "c")) < 2 * longest:
        return False
    return longest < SHORT or (not found.batch and total(found.of(others)) > PACKS * longest)
