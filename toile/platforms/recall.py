"""Which plans are looked up on disk and kept there: those that are quicker to find than to make."""

from __future__ import annotations

import os
from collections.abc import Iterator

from toile.engine.program import Program

FEWEST = 12  # equations of a Program that is worth looking up
WORTH = 0.02  # seconds of planning that are worth a file
# Programs of a process that are looked up and kept whatever they are: where all of them are found,
# the first step comes without what plans, which takes longer to load than they to be planned.
FIRST = 32


def is_early(asked: Iterator[int]) -> bool:
    """Whether the next Program is one of the first; `asked` counts those of a kind of device."""
    return next(asked) < FIRST


def is_long(program: Program) -> bool:
    return len(program.equations) >= FEWEST


def is_worth_keeping(seconds: float) -> bool:
    """Whether a plan that took so long to make is."""
    return seconds >= WORTH


def is_off() -> bool:
    """Whether the environment says to make all plans anew."""
    return os.environ.get("TOILE_PLANS", "") == "off" or "TOILE_DEBUG" in os.environ
