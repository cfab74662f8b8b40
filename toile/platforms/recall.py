"""Which plans are looked up and stored on disk: those that are faster to find than to make."""

from __future__ import annotations

import os
from collections.abc import Iterator

from toile.engine.program import Program

FEWEST = 12  # equations of a Program that is worth looking up
WORTH = 0.02  # seconds of planning that are worth a file
# The first Programs of a process are always looked up and stored. If all of them are found, the
# planner, which takes longer to load than they take to plan, is not loaded before the first step.
FIRST = 32


def is_early(asked: Iterator[int]) -> bool:
    """Whether the next Program is one of the first; `asked` counts those of one platform."""
    return next(asked) < FIRST


def is_long(program: Program) -> bool:
    return len(program.equations) >= FEWEST


def is_worth_keeping(seconds: float) -> bool:
    """Whether a plan that took this long to make is worth storing."""
    return seconds >= WORTH


def is_off() -> bool:
    """Whether the environment turns stored plans off."""
    return os.environ.get("TOILE_PLANS", "") == "off" or "TOILE_DEBUG" in os.environ
