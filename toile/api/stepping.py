"""`toile.debug.step`: run a program one operation at a time in Python's debugger.

While a `Stepper` is active, jitted functions, loops, branches and checkpointed functions run as
ordinary Python code (`disable_jit`), and the traces of `transforms.stepped` report each operation
of the forward and the backward pass to the stepper. The stepper decides where to stop;
`engine.debugger` then runs the debugger there. This module may import all layers below `api`.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TextIO, TypeVar, overload

from toile.engine.config import Override
from toile.engine.source import Source, describe, here
from toile.engine.trace import current, state
from toile.transforms.linearize import LinearTrace
from toile.transforms.stepped import (
    Pause,
    Place,
    StepInfo,
    SteppedTrace,
    StepTrace,
    breakpoint_of,
    has_nan,
    local_names,
    shown_tree,
    user_frame,
)

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(
    fun: Callable[P, R], *, at: str | None = None, line: int | str | None = None, nan: bool = False,
    when: Callable[[StepInfo], Any] | None = None, forward: bool = True, backward: bool = True,
    start: bool = False, stdin: TextIO | None = None, stdout: TextIO | None = None,
) -> Callable[P, R]: ...
@overload
def step(
    *, at: str | None = None, line: int | str | None = None, nan: bool = False,
    when: Callable[[StepInfo], Any] | None = None, forward: bool = True, backward: bool = True,
    start: bool = False, stdin: TextIO | None = None, stdout: TextIO | None = None,
) -> Stepper: ...
def step(
    fun: Callable[..., Any] | None = None, *, at: str | None = None,
    line: int | str | None = None, nan: bool = False,
    when: Callable[[StepInfo], Any] | None = None, forward: bool = True, backward: bool = True,
    start: bool = False, stdin: TextIO | None = None, stdout: TextIO | None = None,
) -> Any:
    """Run a function one operation at a time in Python's debugger, forward and backward.

    The function runs the operations that `toile.jit` would trace, in the same order, but as
    ordinary Python code, including jitted functions, loops, branches and checkpointed functions.
    The debugger stops twice at each call to `breakpoint()`: once in the forward pass, in your own
    frame, and once in the backward pass, when the gradient reaches that line. In the backward pass,
    the frame shows the same line, and your variables have the values that they had in the forward
    pass. The frame also has the following variables, unless your function uses their names:

    - `cotangents`: the cotangents computed so far for your variables, by variable name.
    - `op`, `operands`, `results`, `cotangent`: the name of the operation, its values in the forward
      pass, and the cotangent of its result. They are not available at a `breakpoint()`.
    - `module`, `turn`: the path of the module, and the iteration of the innermost loop, counted
      from 0.
    - `__step__`: an object that has all of these as attributes. In the forward pass, only
      `__step__` is available.

    All commands of pdb work. In the backward pass, the command `step` goes to the next operation.
    Under `vmap`, values are whole batches. If `sys.breakpointhook` or `PYTHONBREAKPOINT` selects
    another debugger, that debugger is used instead of pdb; with `PYTHONBREAKPOINT=0`, the program
    does not stop.

    Args:
        fun: the function, for example `toile.grad(loss)` or a jitted training step. If it is
            omitted, the result is a decorator, which can also be used as a context manager.
        at: path of a module or `named_scope`, such as "encoder/layer_0", or any part of such a
            path; `*` and `?` are wildcards. The debugger stops at the first operation of each call.
        line: line to stop at: a line number in the file in which `fun` is defined, or a string such
            as "model.py:42". The debugger stops only if an operation runs on this line.
        nan: whether to stop after the first operation whose result contains a NaN although its
            operands contain none.
        when: function that is called with a `__step__` object for each operation of both passes.
            The debugger stops after the operations for which it returns True. In addition to the
            attributes above, the object has `backward`, `variables`, `file`, `line`, `function` and
            `turns`. If `at` or `line` is given, `nan` and `when` apply only to operations there.
        forward: whether to stop in the forward pass.
        backward: whether to stop in the backward pass.
        start: whether to stop at the first line of your code.
        stdin: file from which commands are read, instead of `sys.stdin`.
        stdout: file to which the debugger writes, instead of `sys.stdout`.

    Returns:
        A function with the arguments and results of `fun`.

    Raises:
        ValueError: `line` is neither a line number nor a string that ends with one.
        RuntimeError: the result is called inside a function that is being traced, or inside
            another call to `step`.

    >>> import io
    >>> def loss(x):
    ...     y = jnp.sin(x)
    ...     breakpoint()
    ...     return jnp.sum(y * x)
    >>> commands = io.StringIO("p y.shape\\ncontinue\\np cotangents['y'].mean()\\ncontinue\\n")
    >>> answers = io.StringIO()
    >>> gradient = toile.debug.step(toile.grad(loss), stdin=commands, stdout=answers)(jnp.ones(3))
    >>> for answer in answers.getvalue().split("(Pdb) ")[1:3]:
    ...     print(answer.splitlines()[0])
    (3,)
    toile: backward pass at a breakpoint
    >>> answers.getvalue().split("(Pdb) ")[3]
    'Array(1., dtype=float32)\\n'
    """
    file = _file_of(fun)
    wanted = Wanted(at, line, nan, when, file)
    stepper = Stepper(wanted, forward, backward, start, stdin, stdout)
    return stepper if fun is None else stepper(fun)


def _file_of(fun: Any) -> str:
    """The file that a function is defined in, or from which `step` is called."""
    code = getattr(inspect.unwrap(fun), "__code__", None) if callable(fun) else None
    frame = user_frame()
    return code.co_filename if code else (frame.f_code.co_filename if frame else "")


class Wanted:
    """Where a stepper stops: `at` and `line` name places, `nan` and `when` name conditions."""

    def __init__(self, at: str | None, line: int | str | None, nan: bool,
                 when: Callable[[StepInfo], Any] | None, file: str):
        self.at = None if at is None else at.strip("/").split("/")
        self.file, self.line = _file_and_line(line, file)
        self.nan, self.when = nan, when

    @property
    def conditional(self) -> bool:
        return self.nan or self.when is not None

    @property
    def placed(self) -> bool:
        return self.at is not None or self.line > 0

    def is_at(self, info: StepInfo) -> bool:
        """Whether an operation is at one of the places; True if none is given."""
        if not self.placed:
            return True
        if self.line and info.line == self.line and _same_file(info.file, self.file):
            return True
        return self.at is not None and _in_module(info.place.scope, self.at)


def _file_and_line(line: int | str | None, file: str) -> tuple[str, int]:
    if line is None:
        return file, 0
    name, _, number = str(line).rpartition(":")
    if not number.isdigit() or int(number) < 1:
        raise ValueError(
            "debug.step: needed line as a positive number, or as text such as 'model.py:42', got "
            f"{line!r}{here()}"
        )
    return name or file, int(number)


def _same_file(found: str, wanted: str) -> bool:
    """Whether a path ends with the path that the user gave."""
    found, wanted = (os.path.normcase(os.path.normpath(path)) for path in (found, wanted))
    return found == wanted or found.endswith(os.sep + wanted)


def _in_module(scope: tuple[str, ...], wanted: list[str]) -> bool:
    """Whether some part of a module path matches; parts may have the wildcards of file names."""
    n = len(wanted)
    return any(
        all(fnmatch.fnmatchcase(name, w) or fnmatch.fnmatchcase(name.partition(".")[0], w)
            for name, w in zip(scope[i : i + n], wanted, strict=True))
        for i in range(len(scope) - n + 1)
    )


class Stepper:
    """Runs a program one operation at a time; a context manager and a decorator."""

    def __init__(self, wanted: Wanted, forward: bool, backward: bool, start: bool,
                 stdin: TextIO | None, stdout: TextIO | None):
        self.wanted, self.begins = wanted, start
        self.passes = {False: forward, True: backward}
        self.streams = stdin, stdout
        self.silent = False  # inside an operation that is shown as a single step
        self.turns: list[int] = []  # iterations of the running loops
        self.stops = 0
        self.found = self.off = False  # an operation was at the place; PYTHONBREAKPOINT=0
        self.last: dict[bool, Any] = {}  # the place of the last operation of each pass
        self.line: Any = None  # the line of the last operation of the backward pass
        self.previous: Place | None = None
        self.frames: Any = None  # the module `engine.debugger`
        self.debugger: Any = None
        self.saved: list[Any] = []

    # ---- switching it on and off
    def __enter__(self) -> None:
        if state.stepper is not None:
            raise RuntimeError("debug.step: needed a program that is not being stepped through "
                               f"already, got a second debug.step inside the first{here()}")
        if state.trace is not None and state.trace.staging:
            raise RuntimeError(
                "debug.step: needed values, got a call inside a function that is being traced (put "
                f"debug.step around the jitted function instead){here()}"
            )
        from toile.engine import debugger  # loads pdb

        self.frames, self.debugger = debugger, debugger.Debugger(shown_tree, *self.streams)
        options = Override({"disable_jit": True})
        options.__enter__()
        self.saved.append((options, state.trace, sys.breakpointhook))
        self.stops, self.found, self.off, self.last, self.line = 0, False, False, {}, None
        state.trace, state.stepper = StepTrace(None), self
        sys.breakpointhook = self.hook
        if self.begins:
            self.stops += 1
            self.debugger.start()

    def __exit__(self, kind: Any, *_: Any) -> None:
        options, state.trace, sys.breakpointhook = self.saved.pop()
        state.stepper = state.mark = self.previous = None
        self.silent, self.turns = False, []
        self.debugger.finish()
        options.__exit__()
        if kind is None and not self.stops and self._missed():
            warnings.warn(f"debug.step did not stop: {self._missed()}", stacklevel=3)

    def _missed(self) -> str:
        """Why there was no stop, if the reason is probably a mistake."""
        wanted = self.wanted
        if self.found or self.off:
            return ""
        if wanted.line:
            return f"no operation ran on line {wanted.file}:{wanted.line}"
        if wanted.at:
            return f"no operation ran in a module whose path contains {'/'.join(wanted.at)}"
        if wanted.conditional:
            return ""
        return "call breakpoint() in the function, or use at=, line=, nan=True, when= or start=True"

    def __call__(self, fun: Callable[P, R]) -> Callable[P, R]:
        if not callable(fun):
            raise TypeError(f"debug.step: needed a function, got {describe(fun)} (pass the "
                            f"function, and call the result with its arguments){here()}")

        @functools.wraps(fun, updated=())
        def stepped(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return fun(*args, **kwargs)

        return stepped

    # ---- what the traces report
    @property
    def busy(self) -> bool:
        """Whether the user is typing commands, which must not stop again."""
        return self.debugger.busy

    def tracer_of(self, tape: LinearTrace) -> SteppedTrace:
        """The trace that differentiates for a tape."""
        return SteppedTrace(tape)

    def place(self, keep: bool = False) -> Place:
        """Where the current operation comes from; `keep` copies the local variables."""
        mark = state.mark
        turns = tuple(self.turns) if mark is None else mark.info.place.turns
        if state.source is not None:
            known: Place | None = None if mark is None else mark.info.place
            if known and known.source and known.source.code is state.source.code:
                return Place(None, state.source, turns, known.variables, known.globals)
            return Place(None, state.source, turns, {}, _globals_of(state.source.file))
        frame = user_frame()
        if frame is None:
            known = None if mark is None else mark.info.place
            if known is None:
                return Place(None, None, turns, {}, {})
            return Place(None, known.source, turns, known.variables, known.globals)
        names = local_names(frame) if keep else {}
        place = Place(frame, Source(frame.f_code, frame.f_lasti), turns, names, frame.f_globals)
        if keep:
            self.settle()
            self.previous = place
        return place

    def settle(self) -> None:
        """Note the variables after the previous operation, among them its result."""
        previous, self.previous = self.previous, None
        if previous is not None and previous.frame is not None:
            previous.after = local_names(previous.frame)
            previous.frame = None

    def before(self, info: StepInfo) -> None:
        """Called before an operation runs, or when its cotangent has arrived."""
        if self.busy:
            return
        wanted = self.wanted
        again = self._is_again(info)
        if wanted.placed and not wanted.conditional and self.passes[info.backward]:
            found = self._is_there(info)
            place = (info.place.number, info.turns, info.module if wanted.at else info.line)
            repeated = self.last.get(info.backward) == place
            self.last[info.backward] = place if found else None
            if found and not repeated:
                self.stop(info, again=again)
                return
        if info.place.frame is None:
            self._show(info, again)

    def _is_again(self, info: StepInfo) -> bool:
        """Whether the last operation of the backward pass was on the same line."""
        line = (info.backward, info.file, info.line, info.turns)
        previous, self.line = self.line, line
        return previous == line

    def _is_there(self, info: StepInfo) -> bool:
        found = self.wanted.is_at(info)
        self.found |= found and self.wanted.placed
        return found

    def after(self, info: StepInfo) -> None:
        """Called after an operation of the forward pass has run."""
        if self.busy:
            return
        wanted = self.wanted
        if not wanted.conditional or not self.passes[info.backward] or not self._is_there(info):
            return
        if wanted.nan and _makes_nan(info):
            self.stop(info, "the first NaN")
        elif wanted.when is not None and self._holds(info):
            self.stop(info, "the condition holds")

    def met(self, info: StepInfo) -> None:
        """Called after a cotangent has arrived, to test the condition."""
        wanted = self.wanted
        if self.busy or wanted.when is None or not self.passes[True] or not self._is_there(info):
            return
        if self._holds(info):
            self.stop(info, "the condition holds")

    def made_nan(self, info: StepInfo) -> None:
        """Called after the backward pass of an operation has created a NaN."""
        if self.wanted.nan and self.passes[True] and self._is_there(info) and not self.busy:
            self.stop(info, "its backward pass makes the first NaN")

    def _holds(self, info: StepInfo) -> bool:
        assert self.wanted.when is not None
        with current(None):  # the condition's own operations do not count
            return bool(self.wanted.when(info))

    # ---- breakpoints
    def hook(self, *args: Any, **kwargs: Any) -> Any:
        """What `breakpoint()` calls while the stepper is active."""
        if state.stepper is not self:  # another thread
            return self.saved[-1][2](*args, **kwargs)
        return self.pause_in(sys._getframe(1))

    def pause_in(self, frame: FrameType) -> None:
        """Stop at a breakpoint of a function that is running."""
        if state.trace is not None and state.trace.staging:
            op, operands = breakpoint_of(frame)
            op(*operands)
            return
        place = Place(None, Source(frame.f_code, frame.f_lasti), tuple(self.turns),
                      local_names(frame), frame.f_globals)
        self.pause(StepInfo("", place, backward=state.mark is not None), frame)

    def pause(self, info: StepInfo, frame: FrameType | None = None) -> None:
        """Stop at a breakpoint, now and in the backward pass."""
        if self.busy:
            return
        trace = state.trace
        while trace is not None:
            if isinstance(trace, LinearTrace):
                trace.entries.append(Pause(info, trace))
            trace = trace.parent
        if self.passes[info.backward]:
            self.stop(info, frame=frame)

    def paused(self, info: StepInfo) -> None:
        """Called when a breakpoint of the user has been reached again.

        In the backward pass, the stepper stops only if a cotangent has arrived at a variable
        there."""
        if self.passes[info.backward] and (not info.backward or info.cotangents):
            self.stop(info)

    # ---- stopping
    def stop(self, info: StepInfo, why: str = "", frame: FrameType | None = None,
             again: bool = False) -> None:
        """Stop at an operation, in the user's frame if it is running."""
        custom = self._custom_hook()
        if custom is False:
            return
        self.stops += 1
        text = f"{info}: {why}" if why else str(info)
        frame = frame or (None if state.source is not None else info.place.frame)
        if custom is None and frame is not None:
            self.debugger.stop(frame, text, {"__step__": info})
        elif custom is None:
            self._show(info, again, lambda: self.debugger.stop(sys._getframe(1), text, {}))
        else:
            self._show(info, again, custom, is_running=frame is not None)

    def _show(self, info: StepInfo, again: bool, stop: Any = None,
              is_running: bool = False) -> None:
        """Run a frame for an operation; without `stop`, only if a debugger is stepping."""
        if info.place.source is None or (stop is None and sys.gettrace() is None):
            return
        scene = self.frames.Scene(info.scene, stop, again)
        if stop is not None:
            scene.fill()
        function = info.place.source.function
        label = f"backward of {function}" if info.backward and not is_running else function
        self.frames.run_in_frame(info.place.source, label, info.place.globals, scene)

    def _custom_hook(self) -> Any:
        """The user's own debugger; None to use pdb, and False if breakpoints are switched off."""
        if self.streams != (None, None):
            return None
        hook = self.saved[-1][2]
        name = os.environ.get("PYTHONBREAKPOINT", "") if hook is sys.__breakpointhook__ else ""
        if name == "0":
            self.off = True
            return False
        is_pdb = self.frames.pdb.set_trace.__module__ == "pdb" and name in ("", "pdb.set_trace")
        return None if hook is sys.__breakpointhook__ and is_pdb else hook


def _makes_nan(info: StepInfo) -> bool:
    return any(map(has_nan, info.results)) and not any(map(has_nan, info.operands))


def _globals_of(file: str) -> dict[str, Any]:
    """The global variables of the module that was read from a file."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return vars(module)
    return {"__name__": "__main__"}
