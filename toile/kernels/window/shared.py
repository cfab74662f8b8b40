"""Windows, as described to both devices: what is reduced or selected, axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toile.compiler.ir.operands import Operand

# Reductions that have kernels, and selections by their comparison.
KINDS = ("add", "mul", "max", "min", "and", "or", "ge", "le")
EXTREMA = {"ge": "max", "le": "min"}


class Window(NamedTuple):
    """Windows along an axis; an axis without one has the numbers of a window of one element."""

    taps: int
    stride: int
    padding: tuple[int, int]
    base: int  # dilation of the operand
    dilation: int  # of the window

    @property
    def moves(self) -> bool:
        """Whether the axis has a window."""
        return (self.taps, self.stride, self.base) != (1, 1, 1) or self.padding != (0, 0)


def windows_of(op: Any) -> list[Window]:
    """The windows along each axis."""
    return [Window(*fields) for fields in zip(*op.geometry(), strict=True)]


def kind_of(op: Any, ins: Sequence[Operand]) -> str:
    """What is done with a window; with two operands, the first is selected by the second."""
    return op.select if len(ins) > 1 else op.kind
