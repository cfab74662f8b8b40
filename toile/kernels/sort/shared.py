"""What the sorts of both devices share: rows along an axis, and which dtypes have keys."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.geometry import byte_strides, collapse, is_plain, sort_keys
from toile.compiler.ir.operands import Operand
from toile.engine import dtypes

# The bits of infinity; greater ones are NaN.
INFINITY = {
    "float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000,
}  # fmt: skip


def orders(dtype: Any) -> bool:
    """Whether numbers of a dtype have keys."""
    return not dtypes.is_extended(dtype) and (dtype.kind in "biu" or dtype.name in INFINITY)


def keys_of(op: Any, ins: list[Operand]) -> list[Operand] | None:
    """The operands that a sort compares by; None if kernels cannot sort such operands."""
    keys = sort_keys(ins[: op.num_keys])
    fit = all(orders(k.dtype) for k in keys) and all(is_plain(x.dtype) for x in ins)
    return keys if fit else None


class Rows(NamedTuple):
    """Rows along one axis of several arrays whose shapes are equal except for that axis."""

    number: int
    extents: list[int]
    steps: list[list[int]]  # bytes, for each array
    inner: list[int]  # bytes between adjacent elements of a row, for each array


def rows_of(axis: int, *arrays: Operand) -> Rows:
    """The rows of arrays along an axis."""
    without = lambda t: [v for i, v in enumerate(t) if i != axis]
    strides = [byte_strides(a) for a in arrays]
    extents, steps = collapse(without(arrays[0].shape), *map(without, strides))
    return Rows(prod(extents), extents, steps, [s[axis] for s in strides])
