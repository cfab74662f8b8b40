"""Python's garbage collector, paused while something makes many objects that all stay.

Tracing and planning make hundreds of thousands of them, importing tens of thousands; the collector
would look through all that there are, again and again, to find nothing. What toile makes there has
no cycles, apart from what stays: a user's own that is new then waits for the next full collection.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ITS_OWN = 1000  # more than the interpreter keeps apart by itself (some 400 from 3.12 on)
_others_freeze = False  # known once: counting millions of frozen objects takes long


@contextmanager
def paused() -> Iterator[None]:
    """No collections inside, if there were any before, and none of what was made for being new."""
    global _others_freeze
    if not gc.isenabled():
        yield
        return
    gc.collect(1)  # what was new before is not to grow old with the rest: they are few
    gc.disable()
    try:
        yield
        if not _others_freeze:
            _others_freeze = gc.get_freeze_count() >= ITS_OWN
        if not _others_freeze:  # else somebody keeps objects apart, to stay there
            gc.freeze()
            gc.unfreeze()  # moves them to those that are old, unseen
    finally:
        gc.enable()
