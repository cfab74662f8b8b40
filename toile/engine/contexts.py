"""Values set for a block of code that traced programs may depend on: meshes, user contexts.

They are part of every jit cache key (through `config.flags`), so a function is traced again when a
context changes. Values are per thread and hashable. May import engine.config only.
"""

from __future__ import annotations

import itertools
from typing import Any

from toile.engine import config

_numbers = itertools.count()


class Context:
    """One slot: `context(value)` is a context manager, `context.value` the current value."""

    __slots__ = ("default", "number")

    def __init__(self, default: Any = None):
        self.default = default
        self.number = next(_numbers)

    @property
    def value(self) -> Any:
        """The current value on this thread."""
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
        """Set the value on this thread until it is set again."""
        config.set_contexts(self._replaced(config.flags.contexts, new_val))

    def get_global(self) -> Any:
        """The value of threads that have set no context."""
        return self._found(config.process_contexts())

    def set_global(self, new_val: Any) -> None:
        """Set the value for every thread that has set no context."""
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


def make_user_context(default_value: Any = None) -> Context:
    """A user context; jitted functions are traced again when it changes."""
    return Context(default_value)
