"""Where sums of rows are stored, on both devices."""

from __future__ import annotations

from typing import Any

from toile.compiler.ir.geometry import room, row_step
from toile.compiler.ir.operands import Operand


def room_for_sums(out: Operand, starts: bool, plan: Any) -> Operand:
    """The memory for sums: that of the result, also in a part of a concatenation, or other memory.

    starts: whether the sums start from an array. What is computed then has its layout."""
    if out.contiguous or not starts and row_step(out, len(out.shape) - 1) is not None:
        return out
    return room(plan, out.shape, out.dtype)


def copy_sums(out: Operand, made: Operand, plan: Any) -> None:
    """Copy the sums to the result, if they are not there."""
    if made is not out:
        plan.copy(out, made)
