"""What a running module of `flax.nn` works on: its parameters, its key, and its place in the model.

Three stacks of each thread hold the modules that are running, the collections in which `state`
keeps variables, and the keys of `stochastic`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from toile.core.rng import fold_in_static
from toile.engine.source import here
from toile.engine.trace import Tracer, current, state

__all__ = ["Frame", "fold_in_name", "key_of", "pushed", "stacks", "top"]


class Stacks(threading.local):
    """The stacks of one thread, innermost entry last."""

    def __init__(self) -> None:
        self.modules: list[Frame] = []
        self.states: list[Any] = []
        self.outputs: list[Any] = []  # collections that capture the results of modules
        self.keys: list[Any] = []


stacks = Stacks()


@contextlib.contextmanager
def pushed(stack: list[Any], entry: Any) -> Iterator[None]:
    """Put an entry on a stack while the block runs."""
    stack.append(entry)
    try:
        yield
    finally:
        stack.pop()


class Frame:
    """The parameters of one module while it runs; `key` is None unless they are being created."""

    def __init__(self, name: str | None, parent: Frame | None, params: dict[str, Any],
                 key: Any = None, transparent: bool = False):
        self.name, self.parent, self.params, self.key = name, parent, params, key
        self.transparent = transparent
        self.used: dict[str, bool] = {}  # names of submodules -> whether they are shared
        self.shared: set[str] = set()
        self.trace = state.trace if isinstance(key, Tracer) else None
        self._count = 0

    @property
    def path(self) -> str:
        """The names of the modules around this one and of itself, as in "/encoder/dense"."""
        if self.parent is None:
            return f"/{self.name or ''}"
        if self.parent.transparent:
            return self.parent.path
        return f"{self.parent.path.rstrip('/')}/{self.name}"

    def is_below(self, other: Frame | None) -> bool:
        """Whether `other` is a module around this one; None is around every module."""
        frame: Frame | None = self
        while frame is not None:
            frame = frame.parent
            if frame is other:
                return True
        return False

    def next_name(self) -> str:
        """"0", "1", ..., for modules without a name."""
        self._count += 1
        return str(self._count - 1)

    def creating(self) -> contextlib.AbstractContextManager[None]:
        """Makes arrays outside the loops that started after `init`; eagerly if the key is known."""
        return current(self.trace)


def top(what: str) -> Frame:
    """The innermost running module."""
    if not stacks.modules:
        raise ValueError(
            f"{what}: needed a module that is running, got none; {what} should only be used inside "
            f"a module's apply function (move the call into it){here()}"
        )
    return stacks.modules[-1]


def fold_in_name(key: Any, name: str) -> Any:
    """The key of a parameter or submodule: the hash of its name folded into the parent's key."""
    return fold_in_static(key, (name,))


def key_of(frame: Frame, name: str) -> Any:
    """The key of a part of a module whose parameters are being created."""
    with frame.creating():
        return fold_in_name(frame.key, name)
