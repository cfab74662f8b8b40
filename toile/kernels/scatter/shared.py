"""Scatters, as described to both devices: dtypes that are combined, sizes of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.compiler.ir.element_types import real_part, supported
from toile.compiler.ir.geometry import integral, is_plain
from toile.compiler.ir.operands import Operand


def combined_dtype(op: Any, x: Operand, indices: Operand) -> Any:
    """The dtype of the numbers to combine (parts of complex ones); None if there is no kernel."""
    dtype, how = x.dtype, op.combine
    if not integral(indices.dtype) or not is_plain(dtype):
        return None
    if how == "set":
        return dtype
    part = real_part(dtype)
    allowed = how in ("add", "sub") if dtype.kind == "c" else how != "sub" or dtype.kind != "b"
    return part if allowed and supported(part) else None


def window_sizes(op: Any, updates: Sequence[int], rank: int) -> list[int]:
    """The size of a window along each axis of the operand."""
    given = op.dimension_numbers
    dropped = {*given.inserted_window_dims, *given.operand_batching_dims}
    windows = iter(given.update_window_dims)
    return [1 if d in dropped else updates[next(windows)] for d in range(rank)]
