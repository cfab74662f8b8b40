"""The CPU backend: the compiler's passes turn a Program into native code.

The compiler is loaded when something is first compiled, which programs on a GPU may never do.
May import the compiler, the reference backend, control, primitives and the engine.
"""

import typing as _typing

from toile.engine.lazy import attach as _attach

if _typing.TYPE_CHECKING:
    from toile.platforms.cpu.compilation import compiled, planned, run

_FROM = {"compilation": "compiled planned run"}
__getattr__, __dir__ = _attach(__name__, _FROM)

__all__ = ["compiled", "planned", "run"]
