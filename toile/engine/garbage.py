"""Pause Python's garbage collector while many long-lived objects are made.

Tracing and planning make hundreds of thousands of objects, and importing makes tens of thousands.
The collector would scan all existing objects again and again and find nothing to free. During the
pause, toile makes only long-lived cycles; new cycles of the user wait for the next full collection.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ITS_OWN = 1000  # more than the interpreter freezes itself (some 400 from 3.12 on)
_others_freeze = False  # checked until true: counting millions of frozen objects takes long


@contextmanager
def paused() -> Iterator[None]:
    """Disable collections, if enabled, in a block, and afterward mark the new objects as old."""
    global _others_freeze
    if not gc.isenabled():
        yield
        return
    gc.collect(1)  # free young garbage, of which there is little, before the rest is marked old
    gc.disable()
    try:
        yield
        if not _others_freeze:
            _others_freeze = gc.get_freeze_count() >= ITS_OWN
        if not _others_freeze:  # else the user keeps frozen objects, which must stay frozen
            gc.freeze()
            gc.unfreeze()  # moves all objects to the oldest generation without scanning them
    finally:
        gc.enable()
