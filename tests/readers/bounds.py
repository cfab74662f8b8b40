"""How much time and memory a reader takes, and whether an error is one of toile's own."""

import gc
import os
import time
import tracemalloc
from typing import Any, NamedTuple

import toile
from toile.errors import UnreadableFileError

MIB = 1 << 20
_PACKAGE = os.path.dirname(toile.__file__) + os.sep


class Outcome(NamedTuple):
    """What a call returned or raised, its seconds on a processor, its largest number of bytes."""

    value: Any
    error: Exception | None
    seconds: float
    peak: int


def measured(function, *arguments, count_memory=True) -> Outcome:
    """Call a function; memory is what Python and NumPy allocate.

    The collector rests meanwhile: its time would be that of all the other objects of a process."""
    value = error = None
    started = count_memory and not tracemalloc.is_tracing()
    if started:
        tracemalloc.start()
    if tracemalloc.is_tracing():
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
    collects = gc.isenabled()
    gc.disable()
    start = time.thread_time()
    try:
        value = function(*arguments)
    except Exception as caught:
        error = caught
    finally:
        seconds = time.thread_time() - start
        if collects:
            gc.enable()
    peak = tracemalloc.get_traced_memory()[1] - before if tracemalloc.is_tracing() else 0
    if started:
        tracemalloc.stop()
    return Outcome(value, error, seconds, peak)


def is_ours(error: Exception) -> bool:
    """Whether an error is of toile's class for files, or a ValueError that toile itself raises.

    The second are those of `from_state_dict`, for a tree that is whole and does not fit the target;
    their text says so, since tracebacks do not show toile's frames.
    """
    if isinstance(error, UnreadableFileError):
        return True
    if isinstance(error, FileNotFoundError):  # an index that names a file that is not there
        return str(error).startswith("huggingface.load: needed all files")
    return type(error) is ValueError and "\n  in toile." in str(error)
