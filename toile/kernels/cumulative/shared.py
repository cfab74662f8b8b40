"""Running values and linear recurrences, as described to both devices."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from toile.compiler.ir.element_types import is_float, real_part, supported
from toile.compiler.ir.operands import Operand

_KINDS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
_ROUNDED = ("add", "mul", "recurrence")  # kinds whose rounding errors add up
_LONG = 128  # elements from which float32 sums run in float64


class Running(NamedTuple):
    """Running values along sequences of n numbers, of which there are `outer` times `inner`."""

    kind: str
    dtype: Any  # of the numbers; in sums, of the parts of complex ones
    wide: bool  # whether they are accumulated in float64
    outer: int
    n: int
    inner: int


def shift_of(op: Any, inner: int) -> int:
    """The distance from the element of a step of a recurrence to its coefficient, in elements."""
    return 0 if not op.shifted else inner if op.reverse else -inner


def running_of(op: Any, x: Operand) -> Running | None:
    """What an operation computes; None if there is no kernel. The parts of complex sums are
    separate columns."""
    kind, pairs, part = _KINDS.get(op.kind, op.kind), x.dtype.kind == "c", real_part(x.dtype)
    suited = is_float(part) if kind == "logsumexp" else part.kind != "b"
    if not supported(part) or not suited or pairs and kind not in _ROUNDED:
        return None
    n = x.shape[op.axis]
    long = n > _LONG and kind in _ROUNDED and part.name == "float32"
    apart = pairs and kind == "add"
    outer, inner = prod(x.shape[: op.axis]), prod(x.shape[op.axis + 1 :]) * (1 + apart)
    dtype = part if apart else x.dtype
    return Running(kind, dtype, long or kind == "logsumexp", outer, n, inner)
