"""The CPU backend: the compiler's passes turn a Program into native code.

The compiler is loaded when something is first compiled, which programs on a GPU may never do.
This package may import the compiler, targets, platforms, control, primitives and the engine.
"""

import typing as _typing

from toile.engine.lazy import attach_table as _attach
from toile.engine.lazy import names_of as _names_of

if _typing.TYPE_CHECKING:
    from toile.platforms.cpu.compilation import compiled, planned, run
    from toile.platforms.cpu.memory import allocated_again, available
    from toile.platforms.cpu.new_plans import drafted, room_for_results

_FROM = {
    "toile.platforms.cpu.compilation": "compiled planned run",
    "toile.platforms.cpu.memory": "allocated_again available",
    "toile.platforms.cpu.new_plans": "drafted room_for_results",
}
__getattr__, __dir__ = _attach(__name__, _names_of(_FROM), __path__[0])

__all__ = ["allocated_again", "available", "compiled", "drafted", "planned", "room_for_results",
           "run"]
