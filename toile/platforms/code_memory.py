"""How much compiled code a process keeps: TOILE_KERNEL_MEMORY, 1 GB unless it says otherwise.

A compiled Program goes with the function it was made for. Above the limit those that were not
called for longest are given up: their Program forgets them, and is compiled again, or read from
disk, when it is called once more. One that is running stays until it has ended, since the call
refers to it. May import the engine and object_cache.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from toile.disk.object_cache import size_of
from toile.engine.locks import shared_lock
from toile.engine.program import Program

DEFAULT_LIMIT = 1 << 30
VARIABLE = "TOILE_KERNEL_MEMORY"
_LEFT = 0.8  # of the limit, after some were given up: not every new one is to cost an old one


class Compiled(Protocol):
    """A compiled Program."""

    def held_bytes(self) -> int:
        """The memory that goes with it, code that others may use aside."""

    def last_used(self) -> int:
        """A number that is higher the later it was called."""

    def forget_exits(self) -> None:
        """Send calls that know it the general way, to its Program."""


@cache
def limit() -> int:
    """Bytes of code and plans that are kept."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    return size_of(text, VARIABLE)


class Shelf:
    """The compiled Programs of one backend, each with the Program that has it."""

    def __init__(self, code_bytes: Callable[[], int], forget: Callable[[Program, Any], None]):
        """`code_bytes()` is what their code takes; `forget(program, x)` has a Program forget x."""
        self.code_bytes, self.forget = code_bytes, forget
        self.lock = shared_lock()
        self.owners: dict[int, tuple[weakref.ref[Any], weakref.ref[Program]]] = {}

    def add(self, program: Program, made: Compiled) -> None:
        """Note what was made for a Program; above the limit others go."""
        with self.lock:
            key = id(made)
            self.owners[key] = weakref.ref(made, lambda _: self.owners.pop(key, None)), (
                weakref.ref(program))
            if self.total() > limit():
                self._shrink(made)

    def total(self) -> int:
        """Bytes of code and plans."""
        plans = sum(x.held_bytes() for found, _ in list(self.owners.values())
                    if (x := found()) is not None)
        return self.code_bytes() + plans

    def _shrink(self, newest: Compiled) -> None:
        used = [(x.last_used(), key) for key, (found, _) in list(self.owners.items())
                if (x := found()) is not None and x is not newest]
        x = None  # nothing here is to keep one
        target = _LEFT * limit()
        for _, key in sorted(used):
            self.give_up(key)
            if self.total() <= target:
                return

    def give_up(self, key: int) -> None:
        """Have a Program forget what was made for it."""
        found, owner = self.owners.pop(key, (lambda: None, lambda: None))
        made, program = found(), owner()
        if made is not None:
            made.forget_exits()
            if program is not None:
                self.forget(program, made)

    def clear(self) -> None:
        """Give all of them up."""
        with self.lock:
            for key in list(self.owners):
                self.give_up(key)
