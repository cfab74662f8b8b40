"""Limits the memory of compiled code: TOILE_KERNEL_MEMORY, by default 1 GB.

A compiled Program lives as long as the function it was made for. Above the limit, the least
recently called compiled Programs are evicted: their Programs forget them, and are compiled again,
or read from disk, at the next call. One that is running is freed only after it has finished, since
the call refers to it.
This module may import the engine and disk.object_cache.
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
_LEFT = 0.8  # of the limit remains after an eviction, so that not every new Program evicts one


class Compiled(Protocol):
    """A compiled Program."""

    def held_bytes(self) -> int:
        """The memory that it holds, without code that others may share."""

    def last_used(self) -> int:
        """A number that is higher the more recently it was called."""

    def forget_exits(self) -> None:
        """Make calls that hold it go through its Program again."""


@cache
def limit() -> int:
    """How many bytes of code and plans are kept."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT
    return size_of(text, VARIABLE)


class Shelf:
    """The compiled Programs of one backend, each with its Program."""

    def __init__(self, code_bytes: Callable[[], int], forget: Callable[[Program, Any], None]):
        """`code_bytes()`: bytes of their code; `forget(program, x)` makes a Program forget x."""
        self.code_bytes, self.forget = code_bytes, forget
        self.lock = shared_lock()
        self.owners: dict[int, tuple[weakref.ref[Any], weakref.ref[Program]]] = {}

    def add(self, program: Program, made: Compiled) -> None:
        """Add what was compiled for a Program; above the limit, evict others."""
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
        x = None  # keep no reference here
        target = _LEFT * limit()
        for _, key in sorted(used):
            self.give_up(key)
            if self.total() <= target:
                return

    def give_up(self, key: int) -> None:
        """Evict: make a Program forget what was compiled for it."""
        found, owner = self.owners.pop(key, (lambda: None, lambda: None))
        made, program = found(), owner()
        if made is not None:
            made.forget_exits()
            if program is not None:
                self.forget(program, made)

    def clear(self) -> None:
        """Evict all."""
        with self.lock:
            for key in list(self.owners):
                self.give_up(key)
