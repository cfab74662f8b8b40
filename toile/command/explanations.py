"""`toile explain`, which compiles a function of a Python file and prints its kernels, and
`toile doctor`."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import toile
from toile import doctor as machine
from toile import numpy as jnp
from toile.command.failures import Failure, UsageError, one_line
from toile.engine.suggestions import did_you_mean
from toile.inspection import explain as explained

EXAMPLE_ARGUMENTS = "example_args"

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def doctor(args: argparse.Namespace) -> int:
    """Print what toile finds on this machine."""
    return machine.main()


def explain(args: argparse.Namespace) -> None:
    """Print the kernels of a function."""
    file, colon, name = args.function.rpartition(":")
    if not colon or not file or not name:
        raise UsageError(f"needed FILE:FUNCTION, as in model.py:loss, got {args.function!r}")
    path = Path(file)
    if not path.is_file():
        raise Failure(f"needed a Python file, got {file!r}, which does not exist")
    module = imported(path)
    function = function_of(module, name, file)
    positional, named = arguments(module, function, args.arguments, name)
    print(explained(function)(*positional, **named))


def imported(path: Path) -> types.ModuleType:
    """Import a Python file, as a module of its package if any, so that `from . import` works."""
    path = path.resolve()
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if path.name == "__init__.py":
        parts.pop()
    sys.path.insert(0, str(folder))  # as `python FILE` does
    name = ".".join(parts)
    try:
        if len(parts) > 1:
            return importlib.import_module(name)
        if name in sys.modules:  # a file called random.py must not replace Python's
            name = f"{name} to explain"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise Failure(f"needed a Python file, got {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        return module
    except (Failure, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit too: a script may exit
        raise Failure(f"{path.name} cannot be imported: {_place(error, path)}{one_line(error)} "
                      "(--debug shows the traceback)") from error


def _place(error: BaseException, path: Path) -> str:
    """The last line in the file that occurs in the traceback of an error."""
    traceback, line = error.__traceback__, None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == str(path):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return "" if line is None else f"line {line}: "


def function_of(module: types.ModuleType, name: str, file: str) -> Callable[..., Any]:
    """A function of a module, or of a class in it: `Model.loss`."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [n for n in dir(found) if callable(getattr(found, n, None))]
            raise UsageError(f"{file} has no function {name!r}{did_you_mean(part, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"needed a function, got {name}, of type {type(found).__name__}")
    return found


def arguments(
    module: types.ModuleType, function: Callable[..., Any], text: str | None, name: str
) -> Arguments:
    """The arguments to compile for: those of --args, or the examples in the file."""
    if text is not None:
        return evaluated(text, {"toile": toile, "jnp": jnp, "np": np, **vars(module)})
    make = getattr(module, EXAMPLE_ARGUMENTS, None)
    if callable(make):
        made = make()
        return (made if isinstance(made, tuple) else (made,)), {}
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UsageError(
            f"needed arguments for {name}: {error} (use --args \"jnp.ones((2, 3)), ...\", or "
            f"write a function {EXAMPLE_ARGUMENTS}() that returns them as a tuple)") from None
    except ValueError:
        pass  # no signature: only a call can show whether it needs arguments
    return (), {}


def evaluated(text: str, scope: dict[str, Any]) -> Arguments:
    """The values of arguments written as in a call, evaluated with the names in `scope`."""
    try:
        call = ast.parse(f"_({text}\n)", mode="eval")
    except SyntaxError as error:
        raise UsageError(f"--args: needed arguments as in a call, got {text!r} ({error.msg})"
                         ) from None
    if not isinstance(call.body, ast.Call) or call.body.end_lineno != text.count("\n") + 2:
        raise UsageError(f"--args: needed arguments as in a call, got {text!r}")
    try:
        return eval(compile(call, "--args", "eval"), {**scope, "_": lambda *a, **k: (a, k)})
    except Exception as error:
        raise Failure(f"--args: {one_line(error)}, in {text!r}") from error
