"""Tracebacks without the library's frames.

`api_boundary` wraps a function. The tracebacks of exceptions that leave this function do not
contain frames of toile or of registered files. `hide_flax_in_tracebacks` and
`show_flax_in_tracebacks` choose whether the frames of module code are removed too; the option
`flax_filter_frames` sets the default. The option `traceback_filtering` controls all other frames.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from toile.configurations import config
from toile.engine import source

__all__ = [
    "UnfilteredStackTrace", "api_boundary", "hide_flax_in_tracebacks", "register_exclusion",
    "show_flax_in_tracebacks",
]

F = TypeVar("F", bound=Callable[..., Any])

_HERE = os.path.dirname(os.path.abspath(__file__))
_NOTE = (
    "--------------------\nFor simplicity, toile has removed its internal frames from the "
    "traceback of the following exception. Set JAX_TRACEBACK_FILTERING=off to include these."
)


_PACKAGE = _HERE + os.sep
_flax_exclusions = {os.path.join(_HERE, part) + os.sep for part in ("linen", "core")}
_exclude_paths = [_PACKAGE]  # removed paths, including those of modules while they are hidden


class UnfilteredStackTrace(Exception):
    """The cause of an error from which frames were removed; its traceback contains all frames."""


def register_exclusion(path: str) -> None:
    """Treat the files under `path` as module code, which is hidden from tracebacks."""
    hidden = _modules_hidden()
    _flax_exclusions.add(path)
    source.register_exclusion(path)
    if hidden:
        hide_flax_in_tracebacks()


def hide_flax_in_tracebacks() -> None:
    """Hide the code of modules in tracebacks."""
    _exclude_paths[:] = [_PACKAGE, *sorted(_flax_exclusions)]


def show_flax_in_tracebacks() -> None:
    """Show the code of modules in tracebacks."""
    _exclude_paths[:] = [_PACKAGE]


def _modules_hidden() -> bool:
    return len(_exclude_paths) > 1


def _shown(frame: Any) -> bool:
    if frame.f_code.co_filename.startswith(tuple(_flax_exclusions)):
        return not _modules_hidden()
    return not source.is_internal(frame.f_code)


if config.flax_filter_frames:
    hide_flax_in_tracebacks()


def filter_traceback(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without hidden frames."""
    out = None
    for frame, line in reversed(list(traceback.walk_tb(tb))):
        if _shown(frame):
            out = TracebackType(out, frame, frame.f_lasti, line)
    return out


def _under_boundary(frame: Any) -> bool:
    """Whether an outer frame is a boundary too, which then does the filtering."""
    while frame is not None:
        if frame.f_code is _boundary_code:
            return True
        frame = frame.f_back
    return False


def api_boundary(
    fun: F, *, repro_api_name: str | None = None, repro_user_func: bool = False
) -> F:
    """Wrap `fun` so that exceptions that leave it do not show the library's frames.

    If boundaries are nested, the outermost one removes the frames. `repro_api_name` and
    `repro_user_func` are ignored."""

    @functools.wraps(fun)
    def filtering(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True  # for pytest and IPython
        try:
            return fun(*args, **kwargs)
        except Exception as e:
            mode = config.jax_traceback_filtering
            assert e.__traceback__ is not None
            if mode == "off" or _under_boundary(e.__traceback__.tb_frame.f_back):
                raise
            if mode == "tracebackhide":
                for frame, _ in traceback.walk_tb(e.__traceback__):
                    if not _shown(frame):
                        frame.f_locals["__tracebackhide__"] = True
                raise
            if mode == "remove_frames":
                whole = UnfilteredStackTrace(_NOTE).with_traceback(e.__traceback__)
                whole.__cause__, whole.__context__ = e.__cause__, e.__context__
                whole.__suppress_context__ = e.__suppress_context__
                e.__cause__ = whole
            elif _NOTE not in getattr(e, "__notes__", ()):
                e.add_note(_NOTE)
            e.with_traceback(filter_traceback(e.__traceback__))
            raise

    return cast(F, filtering)


_boundary_code: Any = api_boundary(api_boundary).__code__
source.name_call(api_boundary(api_boundary), "")  # errors name the wrapped function
