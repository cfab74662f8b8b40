"""Python's garbage collector, paused while something makes many objects that all stay.

Tracing and planning make hundreds of thousands of them, importing tens of thousands; the collector
would look through all that there are, again and again, to find nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No collections inside, if there were any before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def loading() -> Iterator[None]:
    """No collections while modules are loaded, and none of what was loaded for being new."""
    with paused():
        yield
        if not gc.get_freeze_count():  # else somebody keeps objects apart, who want to stay there
            gc.freeze()
            gc.unfreeze()  # moves them to those that are old, unseen
