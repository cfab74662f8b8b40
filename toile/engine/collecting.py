"""Python's garbage collector, paused while something makes many objects that all stay.

Tracing and planning make hundreds of thousands of them; the collector would look through all that
there are, again and again, to find nothing.
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
