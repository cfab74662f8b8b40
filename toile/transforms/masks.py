"""Selecting from lists by a mask, one truth value per entry.

This module may import only the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from toile.engine.avals import Zero


def nonzero_mask(tangents: Sequence[Any]) -> list[bool]:
    """Which tangents are not symbolic zeros."""
    return [t.__class__ is not Zero for t in tangents]


def pick(xs: Sequence[Any], mask: Sequence[bool], wanted: bool = True) -> list[Any]:
    """The entries whose mask equals `wanted`."""
    return [x for x, m in zip(xs, mask, strict=True) if m == wanted]


def merge(mask: Sequence[bool], chosen: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The next of `chosen` where the mask holds, the next of `others` elsewhere."""
    first, second = iter(chosen), iter(others)
    return [next(first) if m else next(second) for m in mask]


def fill(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """Values where the mask holds, None elsewhere."""
    rest = iter(values)
    return [next(rest) if m else None for m in mask]


def spread(values: Sequence[Any], mask: Sequence[bool], likes: Sequence[Any]) -> list[Any]:
    """Values where the mask holds, symbolic zeros of `likes` elsewhere."""
    rest = iter(values)
    return [next(rest) if m else Zero(x) for m, x in zip(mask, likes, strict=True)]


def fixed_point(mask: Sequence[bool], step: Callable[[list[bool]], tuple[Any, Sequence[bool]]]
                ) -> tuple[list[bool], Any]:
    """The mask of a loop's carries, extended until the body adds no more, and `step` of that mask.

    `step(mask)` returns a derived body, and a mask of the carries that the body returns as nonzero,
    linear, mapped or live. These carries must have the same property at the start of the loop."""
    held = list(mask)
    while True:
        made, found = step(held)
        if all(a or not b for a, b in zip(held, found, strict=True)):
            return held, made
        held = [a or b for a, b in zip(held, found, strict=True)]
