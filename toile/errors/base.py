"""The base class of errors about modules, scopes, transformed modules, checkpoints and cursors.

Names and constructor arguments are the same as in Flax. A message first describes what happened,
including the path of the module, the collection and the name. It then explains how to repair the
program, and shows where in the user's program the error occurred. The programs in the docstrings
assume `import toile`, `import toile.numpy as jnp` and `from toile import linen as nn, random`.
"""

from __future__ import annotations

from typing import Any

from toile.engine.errors import ToileError
from toile.engine.source import here


class FlaxError(ToileError):
    """Base class of errors about modules and their variables.

    Broken::

        nn.Dense(3)(jnp.ones((2, 4)))

    Repaired::

        model = nn.Dense(3)
        variables = model.init(random.key(0), jnp.ones((2, 4)))
        model.apply(variables, jnp.ones((2, 4)))
    """

    def __init__(self, message: str, fix: str = "") -> None:
        hint = f"\n  Fix: {fix}" if fix else ""
        super().__init__(f"{message}{hint}{here()}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args)


def _restored(cls: type[FlaxError], args: tuple[Any, ...]) -> FlaxError:
    """Restore an error from its complete message; constructors expect the parts of the message."""
    return cls.__new__(cls, *args)
