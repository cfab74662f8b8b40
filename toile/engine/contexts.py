"""Values that are set for a block and on which traced programs may depend, such as meshes.

They are part of every jit cache key (through `config.flags`), so a function is traced again when a
context changes. Values are hashable, and each thread has its own. This module may import only
engine.config.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from typing import Any

from toile.engine import config

_numbers = itertools.count()


class Context:
    """A setting that traced functions may read.

    For an instance `context`, `with context(value):` sets the value inside the block.

    Args:
        default: value of the setting where no other value is set.
    """

    __slots__ = ("default", "number")

    def __init__(self, default: Any = None):
        self.default = default
        self.number = next(_numbers)

    @property
    def value(self) -> Any:
        """The current value in this thread."""
        return self._found(config.flags.contexts)

    def _found(self, pairs: tuple[Any, ...]) -> Any:
        for context, value in pairs:
            if context is self:
                return value
        return self.default

    def _replaced(self, pairs: tuple[Any, ...], new_val: Any) -> tuple[Any, ...]:
        kept = [pair for pair in pairs if pair[0] is not self]
        if new_val is not self.default:  # a default value adds nothing to cache keys
            kept.append((self, new_val))
        return tuple(sorted(kept, key=lambda pair: pair[0].number))

    def __call__(self, new_val: Any) -> Setting:
        hash(new_val)  # fails here rather than at the next jitted call
        return Setting(self, new_val)

    def set(self, new_val: Any) -> None:
        """Set the value in this thread until it is set again.

        Args:
            new_val: hashable value.
        """
        config.set_contexts(self._replaced(config.flags.contexts, new_val))

    def get_global(self) -> Any:
        """The value in threads that have not set any context."""
        return self._found(config.process_contexts())

    def set_global(self, new_val: Any) -> None:
        """Set the value in every thread that has not set any context.

        Args:
            new_val: hashable value.
        """
        hash(new_val)
        config.set_process_contexts(self._replaced(config.process_contexts(), new_val))


class Setting:
    """A value of a context for the duration of a block."""

    __slots__ = ("context", "new_val", "saved")

    def __init__(self, context: Context, new_val: Any):
        self.context, self.new_val = context, new_val
        self.saved: list[Any] = []  # a stack: one manager may be entered again

    def __enter__(self) -> Any:
        self.saved.append(config.flags.__dict__.get("contexts"))
        self.context.set(self.new_val)
        return self.new_val

    def __exit__(self, *_: Any) -> None:
        config.set_contexts(self.saved.pop())


def make_user_context(default_value: Hashable = None) -> Context:
    """Create a setting that jitted functions may read while they are traced.

    When the value of a user context changes, jitted functions are traced again, which does not
    happen when an ordinary global variable changes.

    Args:
        default_value: value of the setting where no other value is set.

    Returns:
        The context. `context(value)` is a context manager that sets the value in this thread,
        `context.value` reads the value, and `context.set(value)` sets it until the next change.
        Values must be hashable.

    >>> context = toile.make_user_context("single")
    >>> f = toile.jit(lambda x: 2 * x if context.value == "double" else x)
    >>> f(3)
    Array(3, dtype=int32, weak_type=True)
    >>> with context("double"):
    ...     f(3)
    Array(6, dtype=int32, weak_type=True)
    """
    return Context(default_value)
