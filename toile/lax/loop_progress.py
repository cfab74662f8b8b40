"""The progress of loops, shown while compiled code runs.

This module may import all layers below `lax`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from toile.api.callbacks import debug_callback
from toile.lax.conditionals import cond

__all__ = ["reporting"]

REPORTS = 100  # of one loop, at most


def reporting(
    f: Callable[[Any, Any], Any], length: int, progress: str | bool | Callable[[int, int], None]
) -> Callable[[Any, Any], Any]:
    """The body of a loop that counts its steps in the carry, and reports some of the numbers."""
    every = -(-length // REPORTS)
    show = progress
    if not callable(show):
        show = functools.partial(_show, "scan" if show is True else str(show))

    def report(done: Any) -> None:
        show(int(done), length)

    def step(carry: Any, x: Any) -> Any:
        done, carry = carry
        carry, y = f(carry, x)
        done = done + 1
        cond((done % every == 0) | (done == length),
             lambda n: debug_callback(report, n, ordered=True), lambda n: None, done)
        return (done, carry), y

    return step


def _show(label: str, done: int, total: int) -> None:
    """Overwrite the line that shows the progress of a loop."""
    end = "\n" if done == total else ""
    text = f"\r{label}: {done}/{total} ({100 * done // total}%)"
    print(text, end=end, file=sys.stderr, flush=True)
