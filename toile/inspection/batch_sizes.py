"""The largest batch that fits into memory, found by planning a call at several batch sizes.

The peak grows almost linearly with the batch, so each planned size leads to a better guess for the
next one. This module may import platforms, staging and the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from toile.engine.avals import aval_of
from toile.engine.source import here
from toile.engine.structs import ShapeDtypeStruct

MOST_PLANS = 8
ENOUGH = 5  # plans after which a result that is 1% too small is good enough
LARGEST = 1 << 30
FASTEST = 64  # maximum factor between one batch and the next, as long as every tried batch fits


@dataclass
class Batch:
    """The largest batch that fits into memory.

    Args:
        now: size of the batch in the planned call.
        fits: largest size whose planned peak fits; 0 if not even one example fits.
        memory: bytes that the call may use.
        axis: axis of the batch.
        arguments: names of the arguments that have the batch axis.
        example: bytes that each additional example adds to the peak.
        planned: peaks in bytes, by batch size.
        exact: whether a batch with one more example was planned and does not fit.
    """

    now: int
    fits: int
    memory: int
    axis: int
    arguments: list[str]
    example: float
    planned: dict[int, int] = field(default_factory=dict)
    exact: bool = True


def largest_batch(
    peak: Callable[[int], int], now: int, first: int, room: int
) -> tuple[int, dict[int, int]]:
    """The largest batch whose peak is at most `room`, and the peaks of the batches that were tried.

    `first` is the peak of the batch `now`."""
    known = {now: first}
    for _ in range(MOST_PLANS):
        low = max((n for n, p in known.items() if p <= room), default=0)
        high = min((n for n, p in known.items() if p > room), default=None)
        close = max(low // 100, 1) if len(known) > ENOUGH else 1
        if high is not None and high - low <= close:
            break
        n = _guess(known, low, high, room)
        if n in known or n > LARGEST:
            break
        known[n] = peak(n)
    return max((n for n, p in known.items() if p <= room), default=0), known


def _guess(known: dict[int, int], low: int, high: int | None, room: int) -> int:
    """The batch to try next: where the line through the two nearest peaks reaches `room`."""
    if len(known) == 1:
        (now,) = known
        return 2 * now if low else max(now // 2, 1)
    a, b = sorted(sorted(known, key=lambda n: abs(known[n] - room))[:2])
    slope = (known[b] - known[a]) / (b - a)
    n = int(a + (room - known[a]) / slope) if slope > 0 else 2 * b
    most = FASTEST * max(low, 1) if high is None else high - 1
    return min(max(n, low + 1), most)


def example_bytes(planned: dict[int, int]) -> float:
    """The bytes that each example adds to the peak."""
    small, large = min(planned), max(planned)
    return (planned[large] - planned[small]) / (large - small) if large > small else 0.0


# ---- arguments with another batch


def resized(leaves: Sequence[Any], chosen: Sequence[int], axis: int, n: int) -> list[Any]:
    """The leaves of the arguments; those in `chosen` get `n` examples."""
    found = list(leaves)
    for i in chosen:
        aval = aval_of(leaves[i])
        at = axis % len(aval.shape)
        shape = (*aval.shape[:at], n, *aval.shape[at + 1 :])
        found[i] = ShapeDtypeStruct(shape, aval.dtype)
    return found


def extent(leaves: Sequence[Any], chosen: Sequence[int], axis: int, labels: Sequence[str]) -> int:
    """The size of the batch, which all chosen leaves must have."""
    found: dict[int, str] = {}
    for i in chosen:
        shape = aval_of(leaves[i]).shape
        if not -len(shape) <= axis < len(shape):
            raise ValueError(
                f"plan: needed batch arguments with an axis {axis}, got {labels[i]} of shape "
                f"{shape} (choose others with `batch`, or another `axis`){here()}"
            )
        found.setdefault(shape[axis], labels[i])
    if len(found) > 1:
        sizes = ", ".join(f"{n} in {label}" for n, label in found.items())
        raise ValueError(
            f"plan: needed batch arguments of one size along axis {axis}, got {sizes} (choose "
            f"others with `batch`, or another `axis`){here()}"
        )
    return next(iter(found))
