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
        for context, value in config.flags.contexts:
            if context is self:
                return value
        return self.default

    def __call__(self, new_val: Any) -> Setting:
        hash(new_val)  # fails here rather than at the next jitted call
        return Setting(self, new_val)

    def set(self, new_val: Any) -> None:
        """Put a value in force on this thread until it is set again."""
        kept = [pair for pair in config.flags.contexts if pair[0] is not self]
        if new_val is not self.default:  # what is as ever leaves no trace in cache keys
            kept.append((self, new_val))
        kept.sort(key=lambda pair: pair[0].number)
        config.set_contexts(tuple(kept))


class Setting:
    """A value of a context for the duration of a block."""

    __slots__ = ("context", "new_val", "saved")

    def __init__(self, context: Context, new_val: Any):
        self.context, self.new_val = context, new_val
        self.saved: list[Any] = []  # a stack: one manager may be entered again

    def __enter__(self) -> Any:
        self.saved.append(config.flags.contexts)
        self.context.set(self.new_val)
        return self.new_val

    def __exit__(self, *_: Any) -> None:
        config.set_contexts(self.saved.pop())


def make_user_context(default_value: Any = None) -> Context:
    """A context of the user's that jitted functions are traced again for."""
    return Context(default_value)
