"""Python's debugger for programs that run one operation at a time (`toile.debug.step`).

A stop in the forward pass is a stop in the user's own frame. The backward pass has no such frame:
there, an artificial frame is made, whose code has the file, line and function name of the user's
forward line, and whose local variables are given by a `Scene`, so that every command of pdb works
in it. Frames of toile and of other libraries are hidden. This module may import engine.source and
engine.trace.
"""

from __future__ import annotations

import ast
import bdb
import functools
import os
import pdb
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TextIO

from toile.engine.source import Source, is_internal
from toile.engine.trace import current

_STOP = "__stop__"
_LIBRARIES = tuple(
    path + os.sep for name, path in sysconfig.get_paths().items() if name.endswith("lib")
)


class Scene(dict[str, Any]):
    """The local variables of an artificial frame; `find` computes them when one of them is read.

    The code of the frame calls `stop`, unless that is None. If the line is shown `again`, pdb's
    breakpoints do not stop at it a second time."""

    def __init__(self, find: Callable[[], dict[str, Any]], stop: Callable[[], Any] | None,
                 again: bool = False):
        super().__init__()
        self.find: Callable[[], dict[str, Any]] | None = find
        self.stop, self.again = stop, again

    def fill(self) -> None:
        """Compute the variables, unless they are known already."""
        find, self.find = self.find, None
        if find is not None:
            self.update(find())

    def __missing__(self, name: str) -> Any:
        if name == _STOP:
            return _pass if self.stop is None else self.stop
        if self.find is None:
            raise KeyError(name)
        self.fill()
        return self[name]


def _pass() -> None:
    """Do nothing: the stop function of a frame that is only shown."""


def run_in_frame(source: Source, label: str, names: dict[str, Any], scene: Scene) -> None:
    """Call the function of a scene from a frame that shows a line of the user's program.

    Args:
        source: the line.
        label: name of the frame's function.
        names: global variables of the frame.
        scene: local variables of the frame.
    """
    exec(_code(source.file, source.line, label), names, scene)


@functools.lru_cache(maxsize=4096)
def _code(file: str, line: int, label: str) -> CodeType:
    """The code of a call to the stop function that appears to be on a line of a file."""
    tree = ast.parse(f"{_STOP}()", file)
    ast.increment_lineno(tree, line - 1)
    return compile(tree, file, "exec").replace(co_name=label, co_qualname=label)


def scene_of(frame: FrameType) -> Scene | None:
    """The variables of an artificial frame; None for other frames."""
    if frame.f_code.co_flags & 1:  # of a function, so its variables are not in a mapping
        return None
    found: Any = frame.f_locals
    return found if found.__class__ is Scene else None


def is_library(frame: FrameType) -> bool:
    """Whether a frame belongs to toile, to an installed package or to the standard library."""
    name = frame.f_code.co_filename
    if is_internal(frame.f_code) or name == "<string>" or name.startswith(_LIBRARIES):
        return True
    return "__name__" not in frame.f_globals  # code that toile has generated


class Debugger(pdb.Pdb):
    """pdb that can be stopped in a given frame and that hides the frames of libraries.

    `shown` returns what is displayed for the value of an expression."""

    def __init__(self, shown: Callable[[Any], Any], stdin: TextIO | None = None,
                 stdout: TextIO | None = None):
        super().__init__(stdin=stdin, stdout=stdout, nosigint=True)
        if stdin is not None:
            self.use_rawinput = False
        self.shown = shown
        self.busy = False  # the user is typing commands
        self.extra: dict[str, Any] = {}  # names that commands can use besides the frame's
        self.text = ""
        self.before = sys.gettrace()

    def stop(self, frame: FrameType, text: str, extra: dict[str, Any]) -> None:
        """Read and run the user's commands now, in a frame that is running."""
        self.reset()
        outer: FrameType | None = frame
        while outer is not None:
            outer.f_trace = self.trace_dispatch
            self.botframe = outer
            outer = outer.f_back
        self.set_step()
        self.text, self.extra = text, extra
        self.interaction(frame, None)
        if self.quitting:
            raise bdb.BdbQuit
        # `continue` has switched tracing off, unless there are breakpoints.
        if self.stoplineno != -1 or self.get_all_breaks():
            sys.settrace(self.trace_dispatch)

    def start(self) -> None:
        """Stop at the next line of the user's program."""
        self.reset()
        self.set_step()
        sys.settrace(self.trace_dispatch)

    def finish(self) -> None:
        """End the debugging of the program."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if getattr(frame.f_trace, "__self__", None) is self:
                frame.f_trace = None
            frame = frame.f_back
        sys.settrace(self.before)

    # ---- what pdb calls
    def interaction(self, frame: Any, *args: Any) -> None:
        scene = None if frame is None else scene_of(frame)
        if scene is not None:
            scene.fill()
            self.text = self.text or str(scene["__step__"])
        if self.text:
            self.message(self.text)
            self.text = ""
        self.busy = True
        try:
            if scene is None:
                super().interaction(frame, *args)
            else:
                with current(None):
                    super().interaction(frame, *args)
        finally:
            self.busy = False
            self.extra = {}

    def setup(self, f: Any, tb: Any) -> Any:
        found = super().setup(f, tb)
        names = self.curframe.f_locals if self.curframe else {}
        getattr(self, "curframe_locals", names).update(self.extra)  # until Python 3.13
        return found

    def _getval(self, arg: str) -> Any:
        return self.shown(super()._getval(arg))

    def displayhook(self, obj: Any) -> None:
        super().displayhook(self.shown(obj))

    def get_stack(self, f: Any, t: Any) -> tuple[list[tuple[FrameType, int]], int]:
        stack, index = super().get_stack(f, t)
        kept = [(i, e) for i, e in enumerate(stack)
                if i == index or e[0] is f or not is_internal(e[0].f_code)]
        return [e for _, e in kept], next(n for n, (i, _) in enumerate(kept) if i == index)

    def stop_here(self, frame: FrameType) -> bool:
        if self.busy or (frame is not self.stopframe and is_library(frame)):
            return False
        return super().stop_here(frame)

    def break_here(self, frame: FrameType) -> bool:
        scene = scene_of(frame)
        if scene is not None and scene.again:
            return False
        return super().break_here(frame)

    def user_line(self, frame: FrameType) -> None:
        scene = scene_of(frame)
        if scene is None or scene.stop is None:
            super().user_line(frame)

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        if scene_of(frame) is None:
            super().user_call(frame, argument_list)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        if scene_of(frame) is None:
            super().user_return(frame, return_value)
