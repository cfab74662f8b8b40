"""`toile run`: uses toile to run a program that was written for JAX and Flax."""

from __future__ import annotations

import argparse
import io
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType

from toile.command.failures import UsageError
from toile.interop.process import install

INTERRUPTED = 130  # what shells give for Ctrl-C


def run(args: argparse.Namespace) -> int:
    """Run a file or a module as the main program.

    Args:
        args: `script` or `module`, `since`, and the program's own `program_arguments`.

    Returns:
        The exit status: 0, or 1 if the program raised an error, whose traceback is printed. A
        `SystemExit` that the program raises is not caught.
    """
    if args.module is None and not os.path.isfile(args.script):
        raise UsageError(f"needed a Python file, got {args.script!r}, which does not exist "
                         "(toile run -m MODULE runs a module)")
    install(since=args.since)
    if args.module is not None:
        return _guarded(lambda: _run_module(args.module, args.program_arguments))
    return _guarded(lambda: _run_file(args.script, args.program_arguments))


def _run_file(path: str, arguments: list[str]) -> None:
    sys.argv[:] = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    main = ModuleType("__main__")
    main.__file__ = path
    main.__loader__ = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = main
    with io.open_code(os.path.abspath(path)) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv[:] = [name, *arguments]  # runpy replaces the first one by the module's file
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _guarded(program: Callable[[], None]) -> int:
    """Call the program; an error is printed as Python prints it, without frames from here."""
    try:
        program()
    except SystemExit:
        raise
    except BaseException as error:
        shown = error.with_traceback(_of_program(error.__traceback__))
        sys.excepthook(type(shown), shown, shown.__traceback__)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _of_program(frames: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in the program."""
    for frame, _ in traceback.walk_tb(frames):
        if frame.f_globals.get("__name__") not in (__name__, "runpy"):
            return frames
        assert frames is not None
        frames = frames.tb_next
    return None
