"""Where in the user's program an equation or an error came from.

A location is captured only while something stages (or fails), as a code object and an instruction
offset; the text is made when somebody reads it. Frames inside toile are skipped, so the innermost
frame that remains is the user's. May import nothing but the standard library.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_excluded: list[str] = [_PACKAGE]
_internal: dict[CodeType, bool] = {}


def register_exclusion(path: str) -> None:
    """Treat frames of files under `path` as library code in locations and tracebacks."""
    _excluded.append(path)
    _internal.clear()


def is_internal(code: CodeType) -> bool:
    """Whether `code` belongs to toile, to a registered library or to the import machinery."""
    known = _internal.get(code)
    if known is None:
        name = code.co_filename
        known = name.startswith(tuple(_excluded)) or name.startswith("<frozen")
        known = known or name.endswith(os.sep + "contextlib.py")
        known = known or name.endswith(os.sep + "functools.py")
        _internal[code] = known
    return known


class Source:
    """One location: file, line and function, formatted lazily."""

    __slots__ = ("code", "offset")

    def __init__(self, code: CodeType, offset: int):
        self.code, self.offset = code, offset

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        for i, (line, *_) in enumerate(self.code.co_positions()):
            if 2 * i >= self.offset and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def function(self) -> str:
        return self.code.co_name

    def text(self) -> str:
        """The source line itself, stripped; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


def user_source(depth: int = 1) -> Source | None:
    """The innermost frame outside toile, or None when there is none."""
    frame = sys._getframe(depth)
    while frame is not None:
        if not is_internal(frame.f_code):
            return Source(frame.f_code, frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def where() -> str:
    """` (at file:line)` of the user's frame, with the line's text, for error messages."""
    found = user_source(2)
    if found is None:
        return ""
    text = found.text()
    return f"\n  at {found.file}:{found.line} in {found.function}" + (f"\n    {text}" if text else "")
