"""The CPU backend: the compiler's passes turn a Program into native code.

The compiler is loaded when something is first compiled, which programs on a GPU may never do.
May import the compiler, targets, platforms.reference, control, primitives and the engine.
"""

import typing as _typing

from toile.engine.lazy import attach_table as _attach
from toile.engine.lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from toile.platforms.cpu.compilation import compiled, planned, run

_FROM = {"toile.platforms.cpu.compilation": "compiled planned run"}
__getattr__, __dir__ = _attach(__name__, _names_of(_FROM), __path__[0])

__all__ = ["compiled", "planned", "run"]
