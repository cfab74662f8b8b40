"""Find where in the user's program an equation or an error comes from.

A location is captured only during staging (or on failure), as a code object and an instruction
offset; the text is made when it is read. Frames inside toile are skipped, so the innermost
remaining frame is the user's; the frame that it called is the public function of toile, whose
arguments an error shows by shape and dtype. This module may import only engine.tracebacks.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from opcode import opmap
from types import CodeType, FrameType
from typing import Any

from toile.engine import tracebacks
from toile.engine.tracebacks import is_internal, register_exclusion

__all__ = ["Source", "describe", "here", "is_internal", "message", "module_path", "modules",
           "name_call", "name_module", "in_backward", "register_exclusion", "user_source",
           "variable_name"]


_CACHE = opmap["CACHE"]


class Source:
    """One location: file, line and function, formatted lazily.

    The source of an operation that computes a derivative also has `of`, the line that is
    differentiated. It is the same line, except in the rules that users write for `custom_vjp`.
    `backward`: whether a backward pass performs the operation."""

    __slots__ = ("code", "offset", "of", "backward")

    def __init__(
        self, code: CodeType, offset: int, of: Source | None = None, backward: bool = False
    ):
        self.code, self.offset, self.of, self.backward = code, offset, of, backward

    def derivative(self, of: Source | None = None) -> Source:
        """This location, as that of an operation in the derivative of the line `of` (by default,
        of this line)."""
        if self.of is not None:
            return self
        line = self if of is None else of.of or of
        return Source(self.code, self.offset, line, self.backward)

    def in_backward(self) -> Source:
        """This location, as that of an operation in a backward pass."""
        return self if self.backward else Source(self.code, self.offset, self.of or self, True)

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

    @property
    def place(self) -> tuple[str, int, int]:
        """What tells this call apart from all others, also from others on its line.

        The offset may point into the instruction's caches, which follow it: CPython enters Python
        functions from there once it has specialized the instruction."""
        names, start = self.code.co_code, self.offset
        while start > 0 and names[start] == _CACHE:
            start -= 2
        return self.file, self.code.co_firstlineno, start

    def text(self) -> str:
        """The source line itself, stripped; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


def in_backward(source: Source | None) -> Source | None:
    """A location, if there is one, as that of an operation in a backward pass."""
    return None if source is None else source.in_backward()


def user_source(depth: int = 1) -> Source | None:
    """The innermost frame outside toile, or None when there is none."""
    frame: FrameType | None = sys._getframe(depth)
    known = tracebacks._internal
    while frame is not None:
        code = frame.f_code
        if not known.get(code.co_filename) and not is_internal(code):
            return Source(code, frame.f_lasti)
        frame = frame.f_back
    return None


def variable_name(value: object) -> str:
    """The name of the local variable of the user's function that holds a value, or ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    names = {} if frame is None else frame.f_locals
    return next((name for name, held in names.items() if held is value), "")


class _Modules(threading.local):
    """The modules of a network that are being called, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Any] = [None]


modules = _Modules()


def module_path(module: Any = None) -> str:
    """For errors: the path of a module, by default of the one that is being called."""
    module = modules.stack[-1] if module is None else module
    if module is None or module.scope is None:
        return ""
    return f"\n  in module {module.scope.path_text} ({type(module).__name__})"


def name_module(
    error: BaseException, module: Any, args: tuple[Any, ...], advise: Callable[[], str]
) -> None:
    """Add the module that was called, and with what, to an error of the user's code."""
    tracebacks.expect_error()
    path = module_path(module)
    if path and "\n  in module " not in f"{error}" and not any(
        note.startswith("  in module ") for note in getattr(error, "__notes__", ())
    ):
        given = ", ".join([describe(x) for x in args])
        error.add_note(path[1:] + (f", called with {given[:_MOST]}" if given else "") + advise())


def here() -> str:
    """Describe the current call to toile for an error message.

    Returns:
        Text that begins with a new line: the call with its operands, and the line of the user's
        program, as far as they are known.
    """
    frame: FrameType | None = sys._getframe(1)
    inside: list[FrameType] = []
    while frame is not None and is_internal(frame.f_code):
        inside.append(frame)
        frame = frame.f_back
    text = module_path()
    text += (_module_arguments(inside) if text else "") + _call(inside)
    if frame is not None:
        found = Source(frame.f_code, frame.f_lasti)
        line = found.text()
        text += f"\n  at {found.file}:{found.line} in {found.function}"
        text += f"\n    {line}" if line else ""
    tracebacks.expect_error()
    return text


def _module_arguments(frames: list[FrameType]) -> str:
    """The arguments of the module that is being called, if they contain arrays."""
    for frame in frames:
        if frame.f_code.co_name == "_call_wrapped_method":
            args = [a for a in frame.f_locals.get("args", ()) if hasattr(type(a), "shape")]
            given = ", ".join([describe(a) for a in args])
            return f", called with {given}" if given else ""
    return ""


def message(error: BaseException) -> str:
    """The text of an error without its location, for errors that quote others."""
    return str(error).partition("\n  in ")[0].partition("\n  at ")[0]


# ----------------------------------------------------------------------------- the call that failed

_describing = False  # the error that reading a deleted array raises must not describe it again


def _call(frames: list[FrameType]) -> str:
    """The outermost call to a public function among toile's frames (innermost first)."""
    global _describing
    if _describing:
        return ""
    _describing = True
    try:
        for frame in reversed(frames):
            name = _public_name(frame)
            if name:
                return f"\n  in {name}({_arguments(frame)})"
    finally:
        _describing = False
    return ""


_names: dict[CodeType, str] = {}


def name_call(function: Any, text: str) -> None:
    """Refer to calls to `function` as `text` in errors."""
    _names[function.__code__] = text


def _public_name(frame: FrameType) -> str:
    """`toile.numpy.matmul` for a frame of that function or of one it returned; else empty."""
    code = frame.f_code
    if code in _names:
        return _names[code]
    root, _, inner = code.co_qualname.partition(".<locals>.")
    if "name" in code.co_freevars:  # made from a table, by a function that was given the name
        root, inner = str(frame.f_locals.get("name", root)), ""
    if root.startswith("_") or "." in root or "<lambda>" in root:
        return ""
    home = str(frame.f_globals.get("__name__", ""))
    path = home.split(".")
    for i in range(1, len(path) + 1):
        module = sys.modules.get(".".join(path[:i]))
        if path[i - 1] in _LAYERS or path[i - 1].startswith("_"):
            return ""
        public = hasattr(module, "__path__") and root in getattr(module, "__all__", ())
        found = getattr(module, root, None) if public else None  # this may load the attribute
        if found is not None and getattr(found, "__module__", home) == home:
            return ".".join(path[:i]) + "." + root + ("(...)" if inner else "")
    listed = root in frame.f_globals.get("__all__", ())
    return f"{frame.f_globals['__name__']}.{root}" if listed else ""


_LAYERS = {"engine", "primitives", "transforms", "control", "targets", "kernels", "platforms",
           "staging"}


def _arguments(frame: FrameType) -> str:
    """The arguments of a call that help to explain the error: arrays, sizes and names."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    shown = []
    for i, name in enumerate(code.co_varnames[: count + bool(code.co_flags & 0x04)]):
        value = values.get(name)
        if i == count:
            shown += [describe(v) for v in value or ()]
        elif value is not None and type(value) not in (bool, object) and describe(value):
            shown.append(f"{name}: {describe(value)}")
    text = ", ".join(shown)
    return text if len(text) <= _MOST else text[:_MOST] + " ..."


_MOST = 240  # characters of one call


def describe(value: object, depth: int = 0) -> str:
    """Describe a value in an error message.

    Args:
        value: array, tree or other value.
        depth: number of containers around the value; values inside more than three containers are
            left out.

    Returns:
        For an array, text such as `float32[3,4]`; for a container, its first items; for other
        values, their shortened repr.
    """
    given = getattr(type(value), "in_errors", None)  # array-like objects describe themselves
    if given is not None:
        return given(value)
    if hasattr(type(value), "_call_wrapped_method"):  # a module, whose attributes run `setup`
        return type(value).__name__
    try:
        array: Any = value
        shape, dtype = array.shape, array.dtype
        return f"{getattr(dtype, 'name', dtype)}[{','.join(map(str, shape))}]"
    except Exception:
        pass
    if isinstance(value, (dict, list, tuple)):
        return _described_items(value, depth + 1)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, (str, bytes, bytearray)):
        value = value[:61]  # a repr can be four times as large as a file's bytes
    try:
        text = repr(value)
    except Exception:
        text = type(value).__name__
    return text if len(text) <= 60 and "\n" not in text else f"{text.split(chr(10))[0][:50]}..."


_ITEMS = 8  # of one list, tuple or dict
_DEPTH = 3  # of trees


def _described_items(value: Any, depth: int) -> str:
    """A container in an error, by its first items."""
    is_dict = isinstance(value, dict)
    if depth > _DEPTH:
        return "{...}" if is_dict else "(...)"
    if is_dict:
        first = list(value.items())[:_ITEMS]
        return _listed("{}", [f"{k!r}: {describe(v, depth)}" for k, v in first], len(value))
    brackets = "[]" if isinstance(value, list) else "()"
    return _listed(brackets, [describe(v, depth) for v in value[:_ITEMS]], len(value))


def _listed(brackets: str, items: list[str], count: int) -> str:
    if count > _ITEMS:
        items = [*items, f"... {count - _ITEMS} more"]
    comma = "," if len(items) == 1 and brackets == "()" else ""
    return brackets[0] + ", ".join(items) + comma + brackets[1]
