"""The memory of results that an exit keeps for later calls, until a donation takes it away.

A compiled call reuses the memory of its result of the call before the last, if nothing else refers
to it. A function that the result is donated to may overwrite it nevertheless: `released` takes the
memory from the call that keeps it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from toile.engine.buffers import Block


class Turns(list[Any]):
    """The blocks of a result in the last two calls. Their memory refers to this list weakly."""

    __slots__ = ("__weakref__",)


def noting(turns: Turns, allocate: Callable[[int], Block]) -> Callable[[int], Block]:
    """`allocate`, for blocks that these turns will hold."""
    held = weakref.ref(turns)

    def noted(nbytes: int) -> Block:
        block = allocate(nbytes)
        block[0].turns = held
        return block

    return noted


def released(block: Any) -> bool:
    """Whether an exit held a block in order to reuse it. The exit no longer does: a result that
    overwrites a donated argument needs its memory now."""
    held = getattr(block[0], "turns", None) if block.__class__ is tuple else None
    turns = None if held is None else held()
    found = [i for i, b in enumerate(turns or ()) if b is block]
    if turns is not None:
        for i in found:
            turns[i] = None
    return bool(found)
