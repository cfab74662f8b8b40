"""Tracebacks without the library's frames.

The option `jax_traceback_filtering` chooses what happens to toile's own frames in tracebacks: by
default they are removed (`toile.engine.tracebacks`), and "off" keeps them. `api_boundary` applies
the same option to one of your functions, no matter what raises the error. `hide_flax_in_tracebacks`
and `show_flax_in_tracebacks` choose whether the frames of module code are removed too; the option
`flax_filter_frames` sets the default.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from toile.configurations import config
from toile.engine import source, tracebacks

__all__ = [
    "UnfilteredStackTrace", "api_boundary", "hide_flax_in_tracebacks", "register_exclusion",
    "show_flax_in_tracebacks",
]

F = TypeVar("F", bound=Callable[..., Any])

_HERE = os.path.dirname(os.path.abspath(__file__))
_NOTE = "The traceback of the following exception contains all frames."
_module_folders = {os.path.join(_HERE, part) + os.sep for part in ("linen", "core")}


class UnfilteredStackTrace(Exception):
    """The cause of an error whose traceback was shortened; the cause keeps the full traceback."""


def register_exclusion(path: str) -> None:
    """Omit the files in a folder from tracebacks, as toile's own files are omitted.

    Args:
        path: folder with the files.
    """
    shown = bool(tracebacks.shown_folders)
    _module_folders.add(path)
    tracebacks.register_exclusion(path)
    if shown:
        show_flax_in_tracebacks()


def hide_flax_in_tracebacks() -> None:
    """Leave the frames of `toile.linen` and `toile.core` out of tracebacks."""
    tracebacks.shown_folders.clear()


def show_flax_in_tracebacks() -> None:
    """Show the frames of `toile.linen` and `toile.core` in tracebacks."""
    tracebacks.shown_folders.update(_module_folders)


if not config.flax_filter_frames:
    show_flax_in_tracebacks()


def filter_traceback(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without hidden frames."""
    return tracebacks.users_frames(tb)


def _under_boundary(frame: Any) -> bool:
    """Whether an outer frame is also a boundary; the outermost boundary removes the frames."""
    while frame is not None:
        if frame.f_code is _boundary_code:
            return True
        frame = frame.f_back
    return False


def api_boundary(
    fun: F, *, repro_api_name: str | None = None, repro_user_func: bool = False
) -> F:
    """Wrap `fun` so that the tracebacks of its exceptions do not show the library's frames.

    If boundaries are nested, the outermost one removes the frames.

    Args:
        fun: function to wrap.
        repro_api_name: accepted for compatibility with JAX.
        repro_user_func: accepted for compatibility with JAX.

    Returns:
        A function with the arguments and results of `fun`.
    """

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
                    if tracebacks.is_hidden(frame.f_code):
                        frame.f_locals["__tracebackhide__"] = True
                raise
            if mode == "remove_frames":
                whole = UnfilteredStackTrace(_NOTE).with_traceback(e.__traceback__)
                whole.__cause__, whole.__context__ = e.__cause__, e.__context__
                whole.__suppress_context__ = e.__suppress_context__
                e.__cause__ = whole
            else:
                tracebacks.expect_error()
                tracebacks.tidy_causes(e)
            e.with_traceback(filter_traceback(e.__traceback__))
            raise

    return cast(F, filtering)


_boundary_code: Any = api_boundary(api_boundary).__code__
source.name_call(api_boundary(api_boundary), "")  # errors name the wrapped function
