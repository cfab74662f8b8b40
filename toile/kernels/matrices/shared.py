"""Layouts of matrices for libraries that store them by columns."""

from __future__ import annotations

from typing import Any

from toile.compiler.ir.geometry import permuted, room
from toile.compiler.ir.operands import Operand


def transposed(x: Operand) -> Operand:
    """The transposes of matrices."""
    rank = len(x.shape)
    return permuted(x, (*range(rank - 2), rank - 1, rank - 2))


def by_columns(plan: Any, x: Operand) -> Operand:
    """Matrices stored by columns, in scratch memory."""
    *batch, m, n = x.shape
    made = room(plan, (*batch, n, m), x.dtype)
    plan.copy(made, transposed(x))
    return made
