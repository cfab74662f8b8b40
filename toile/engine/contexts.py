"""Values that traced programs may depend on and that a block of code sets: meshes, the user's own.

Whatever is set here belongs to the key of every jit cache (it travels in `config.flags`), so a
function is traced again when a context that was in force changes. Values are per thread and
hashable. May import engine.config only.
"""

from __future__ import annotations

import itertools
from typing import Any

from toile.engine import config

_numbers = itertools.count()


class Context:
    """One slot: `context(value)` is a context manager, `context.value` what is in force."""

    __slots__ = ("default", "number")

    def __init__(self, default: Any = None):
        self.default = default
        self.number = next(_numbers)

    @property
    def value(self) -> Any:
        """The value in force on this thread."""
        return self._found(config.flags.contexts)

    def _found(self, pairs: tuple[Any, ...]) -> Any:
        for context, value in pairs:
            if context is self:
                return value
        return self.default

    def _replaced(self, pairs: tuple[Any, ...], new_val: Any) -> tuple[Any, ...]:
        kept = [pair for pair in pairs if pair[0] is not self]
        if new_val is not self.default:  # what is as ever leaves no trace in cache keys
            kept.append((self, new_val))
        return tuple(sorted(kept, key=lambda pair: pair[0].number))

    def __call__(self, new_val: Any) -> Setting:
        hash(new_val)  # fails here rather than at the next jitted call
        return Setting(self, new_val)

    def set(self, new_val: Any) -> None:
        """Put a value in force on this thread until it is set again."""
        config.set_contexts(self._replaced(config.flags.contexts, new_val))

    def get_global(self) -> Any:
        """The value of threads that have set no context."""
        return self._found(config.process_contexts())

    def set_global(self, new_val: Any) -> None:
        """Put a value in force on every thread that has set no context."""
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
    """A context of the user's that jitted functions are traced again for."""
    return Context(default_value)
