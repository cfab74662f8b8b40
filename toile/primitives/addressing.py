"""Where a gather or scatter reads and writes: dimension numbers, modes and fill values.

These are the static parameters of `primitives.indexing`, and what is checked of them. A fill value
is kept as text, because fields of operations compare by value. May import the engine only.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.source import here

Dims = tuple[int, ...]


class GatherDimensionNumbers(NamedTuple):
    """Which axes of operand, indices and result a gather pairs.

    offset_dims: axes of the result that run over a window; collapsed_slice_dims: operand axes with
    windows of size 1 that leave the result; start_index_map: the operand axis that each component
    of an index vector addresses; the batching dims pair axes of operand and indices."""

    offset_dims: Dims
    collapsed_slice_dims: Dims
    start_index_map: Dims
    operand_batching_dims: Dims = ()
    start_indices_batching_dims: Dims = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which axes of operand, indices and updates a scatter pairs, named as for a gather."""

    update_window_dims: Dims
    inserted_window_dims: Dims
    scatter_dims_to_operand_dims: Dims
    operand_batching_dims: Dims = ()
    scatter_indices_batching_dims: Dims = ()


class GatherScatterMode(enum.Enum):
    """What happens to windows that leave the operand."""

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()
    ONE_HOT = enum.auto()

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """A mode from its name; None is FILL_OR_DROP."""
        if isinstance(s, GatherScatterMode):
            return s
        found = _MODES.get(s)
        if found is None:
            known = ", ".join(str(m) for m in _MODES if m)
            raise ValueError(f"Unknown gather mode {s!r}: needed one of {known}{here()}")
        return found


_MODES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
    "one_hot": GatherScatterMode.ONE_HOT,
}


def fill_text(value: Any) -> str | None:
    """A fill value as the text of a number: as fields, 0.0 and -0.0 or 1 and True were equal."""
    return None if value is None else repr(np.asarray(value).item())


def fill_number(text: str | None, dtype: Any) -> Any:
    if text is None:
        return None
    kind = dtypes.kind(dtype)
    if kind == "c":
        return complex(text)
    number = text == "True" if text in ("True", "False") else float(text)
    if kind == "b":
        return bool(number)
    return number if kind == "f" else int(text) if text.lstrip("-").isdigit() else int(number)


def index_problem(
    operand: Aval, indices: Aval, mapped: Dims, batching: Dims, index_batching: Dims
) -> str:
    """What is wrong with the indices of a gather or scatter; empty if nothing is."""
    if dtypes.kind(indices.dtype) not in "iu":
        return "integer indices"
    if indices.ndim < 1 or indices.shape[-1] != len(mapped):
        return f"index vectors of {len(mapped)} components along the last axis of the indices"
    if any(not 0 <= d < operand.ndim for d in (*mapped, *batching)):
        return f"addressed axes within the operand's, here {(*mapped, *batching)}"
    if len(set(mapped)) != len(mapped) or set(mapped) & set(batching):
        return f"distinct addressed axes, here {(*mapped, *batching)}"
    pairs = list(zip(batching, index_batching, strict=False))
    if len(batching) != len(index_batching) or any(
        operand.shape[a] != indices.shape[b] for a, b in pairs
    ):
        return f"equal sizes of the paired batching axes {pairs} of operand and indices"
    return ""
