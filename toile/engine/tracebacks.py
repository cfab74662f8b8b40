"""Tracebacks that show the user's frames only.

A public function of toile is not wrapped to filter tracebacks: this would make every call slower.
Instead, an error that toile is about to raise (`here`), or that a function of the user has raised
inside a transformation, calls `expect_error`. It watches the innermost frame of the user with
Python's own tracing. When the error arrives there, toile's frames are removed below it, and the
next frame of the user that called toile is watched. Watching ends with the first event that is not
this error. If a debugger or a coverage tool is already tracing, it is left alone, and tracebacks
are complete. This module may import only the standard library.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from types import CodeType, FrameType, TracebackType
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARY_FILES = (os.sep + "contextlib.py", os.sep + "functools.py")
_NUMPY = os.path.join("", "site-packages", "numpy", "")
_OTHERS = os.path.join("", "site-packages", "")
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_GENERATED = ("<frozen", "<toile ")  # the import machinery; code that toile writes
_excluded: list[str] = [_PACKAGE]
_internal: dict[str, bool] = {}  # by file name: hashing a code object reads all of it
shown_folders: set[str] = set()  # of toile, whose frames are shown all the same


def register_exclusion(path: str) -> None:
    """Treat frames of files under `path` as library code in locations and tracebacks."""
    _excluded.append(path)
    _internal.clear()


def is_internal(code: CodeType) -> bool:
    """Whether `code` belongs to toile, to a registered library or to the import machinery."""
    name = code.co_filename
    known = _internal.get(name)
    if known is None:
        known = name.startswith(tuple(_excluded)) or name.startswith(_GENERATED)
        known = known or name.endswith(_LIBRARY_FILES) or _NUMPY in name
        _internal[name] = known
    return known


def is_hidden(code: CodeType) -> bool:
    """Whether frames of `code` are left out of tracebacks."""
    if shown_folders and code.co_filename.startswith(tuple(shown_folders)):
        return False
    return is_internal(code)


# ------------------------------------------------------------------------------ filtering

_MOST_REPEATED = 3  # frames of one line; deeper recursion is left out


def users_frames(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without toile's frames and without frames of libraries that toile called.

    If a line recurs, only its first calls and the last one remain. If methods of modules call each
    other, those of the innermost module remain: the error names the path to it."""
    entries: list[Entry] = []
    inside = False
    for frame, line in traceback.walk_tb(tb):
        file = frame.f_code.co_filename
        if is_hidden(frame.f_code):
            inside = True
        elif not (inside and (_OTHERS in file or file.startswith(_STANDARD))):
            entries.append((frame, line))
            inside = False
    out = None
    for frame, line in reversed(_without_repeats(_without_callers(entries))):
        out = TracebackType(out, frame, frame.f_lasti, line)
    return out


Entry = tuple[FrameType, int]


def _without_callers(entries: list[Entry]) -> list[Entry]:
    """The entries without methods of modules that called methods of other modules."""
    if len(entries) < 2:
        return entries
    owners = [_module_of(frame) for frame, _ in entries]
    innermost = next((owner for owner in reversed(owners) if owner is not None), None)
    return [entry for entry, owner in zip(entries, owners, strict=True)
            if owner is None or owner is innermost]


def _module_of(frame: FrameType) -> Any:
    """The module whose method a frame runs (see `toile.linen`), or None."""
    names = frame.f_code.co_varnames
    owner = frame.f_locals.get(names[0]) if names else None
    return owner if hasattr(type(owner), "_call_wrapped_method") else None


def _without_repeats(entries: list[Entry]) -> list[Entry]:
    count: dict[Any, int] = {}
    last: dict[Any, int] = {}
    for i, (frame, line) in enumerate(entries):
        last[frame.f_code, line] = i
    kept = []
    for i, (frame, line) in enumerate(entries):
        place = frame.f_code, line
        count[place] = count.get(place, 0) + 1
        if count[place] < _MOST_REPEATED or i == last[place]:
            kept.append((frame, line))
    return kept


def _quote_cause(error: BaseException) -> None:
    """Add the text of toile's error to the error by which another library replaced it."""
    cause = error.__cause__ or error.__context__
    trace = None if cause is None else cause.__traceback__
    if trace is not None and is_hidden(trace.tb_frame.f_code) and str(cause) not in str(error):
        error.add_note(f"{type(cause).__name__}: {cause}")


def tidy_causes(error: BaseException) -> None:
    """Filter the tracebacks of an error's causes; drop causes that never left toile."""
    seen = {id(error)}
    while True:
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        whole = cause.__traceback__
        cause.__traceback__ = users_frames(whole)
        if whole is not None and cause.__traceback__ is None:
            cause.__traceback__ = whole
            error.__suppress_context__ = True
            error.__cause__ = None
            return
        error = cause


# ------------------------------------------------------------------------------ watching


_MOST_CALLS = 8  # between the creation of the text of an error and its `raise`


class _Watched(threading.local):
    frame: FrameType | None = None
    calls = 0  # that may still happen before the error is raised


_watched = _Watched()


def _removes_frames() -> bool:
    """Whether the option `jax_traceback_filtering` asks for short tracebacks."""
    config = sys.modules.get("toile.engine.config")  # which imports this module
    flags = getattr(config, "flags", None)
    return getattr(flags, "traceback_filtering", "auto") in ("auto", "quiet_remove_frames")


def expect_error() -> None:
    """Shorten the traceback of the error that is about to leave toile."""
    if sys.gettrace() not in (None, _called) or not _removes_frames():
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_hidden(frame.f_code):
        frame = frame.f_back
    if frame is not None:
        _watch(frame)


def _watch(frame: FrameType) -> None:
    _stop()
    _watched.frame, _watched.calls = frame, _MOST_CALLS
    frame.f_trace = _arrived
    sys.settrace(_called)


def _stop() -> None:
    """Stop watching."""
    frame = _watched.frame
    if frame is not None:
        _watched.frame = None
        if frame.f_trace is _arrived:
            frame.f_trace = None
    if sys.gettrace() is _called:
        sys.settrace(None)


def _called(frame: FrameType, event: str, arg: Any) -> None:
    """A function is called; too many calls mean that the error was caught or never raised."""
    _watched.calls -= 1
    if _watched.calls < 0 and sys.exc_info()[1] is None:
        _stop()


def _arrived(frame: FrameType, event: str, arg: Any) -> None:
    """The watched frame continues, or the error arrives in it."""
    _stop()
    if event != "exception":
        return
    _, error, tb = arg
    if tb.tb_next is None:
        _quote_cause(error)
    tb.tb_next = users_frames(tb.tb_next)
    tidy_causes(error)
    outer = _next_caller(frame)
    if outer is not None:
        _watch(outer)


def _next_caller(frame: FrameType | None) -> FrameType | None:
    """The next outer frame of the user that called toile."""
    inside = False
    while frame is not None:
        hidden = is_hidden(frame.f_code)
        if inside and not hidden:
            return frame
        inside, frame = hidden, frame.f_back
    return None
