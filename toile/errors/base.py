"""The base of the errors of modules, scopes, transformed modules, checkpoints and cursors.

Their names and constructor arguments are Flax's. A message says what happened with the module's
path, the collection and the name, then how to repair it, then where in the user's program. The
programs in the docstrings run after `import toile`, `import toile.numpy as jnp`,
`from toile import linen as nn, random` and the imports they make themselves.
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
    """The error with its finished message: constructors take what the message is made of."""
    return cls.__new__(cls, *args)
