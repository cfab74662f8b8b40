"""Reports of indices that are out of bounds: a warning once per place, or an error.

An index whose mode the user did not choose is clamped, dropped or filled, as in JAX. `Bounds` says
which values are in bounds, and describes a bad one in the words of the operation that uses it. It
is created where the user's call is traced, so that it knows the line and the module; compiled code
only returns the bad value. This module may import the modules of the engine below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine.check_switch import enabled
from toile.engine.errors import OutOfBoundsWarning
from toile.engine.extra_warnings import advise
from toile.engine.source import module_path
from toile.engine.trace import current_source

_warned: set[Any] = set()  # the places that were reported


class Bounds:
    """The values that an index may have, and what to say about others.

    `tell` describes a bad index and says what was done with it; `name` is the operation, which
    together with the user's line is the place that is reported once.
    """

    __slots__ = ("low", "high", "name", "tell", "source", "module")

    def __init__(self, low: int, high: int, name: str, tell: Callable[[int], str]):
        self.low, self.high, self.name, self.tell = low, high, name, tell
        self.source, self.module = current_source(), module_path()

    def check(self, indices: Any) -> None:
        """Report the worst index in a NumPy array of indices, if it is out of bounds."""
        found = outside(indices, self.low, self.high)
        if found is not None:
            self.report(found)

    def report(self, index: int) -> None:
        """Raise an error if `checks("index")` is on; otherwise warn, once for each place."""
        if enabled("index"):
            raise IndexError(self._text(index, True))
        source = self.source
        file, line = ("<unknown>", 0) if source is None else (source.file, source.line)
        place = self.name, source and source.place
        if place in _warned:
            return
        _warned.add(place)
        hint = '\n  (toile.checks("index") makes this an error)'
        advise(self._text(index, False) + hint, OutOfBoundsWarning, file, line)

    def _text(self, index: int, quotes: bool) -> str:
        """The message; `quotes` adds the text of the line, which a printed warning has anyway."""
        at = ""
        if self.source is not None:
            at = f"\n  at {self.source.file}:{self.source.line} in {self.source.function}"
            line = self.source.text() if quotes else ""
            at += f"\n    {line}" if line else ""
        return self.tell(index) + self.module + at

    def __repr__(self) -> str:
        return f"{self.low}...{self.high}"


def outside(indices: Any, low: int, high: int) -> int | None:
    """An element of a NumPy array that is less than `low` or greater than `high`; None if all are
    in between."""
    if not indices.size:
        return None
    most, least = int(indices.max()), int(indices.min())
    return most if most > high else least if least < low else None


def forget_places() -> None:
    """Report places again that were reported before."""
    _warned.clear()
