"""Numbers, strings and tuples that a traced function reads from outside its arguments.

A compiled function uses the value that a global variable, a closed-over variable or a default
argument had when the function was traced. If such a variable has another value at a later call,
toile warns once for each variable. Tracing finds the variables in the code of the function and of
the functions that it calls. The general path of `jit` compares all of them; the generated path
compares the first `MOST_COMPARED` by identity, in about 40 ns each. This module may import the
engine.
"""

from __future__ import annotations

import dis
import functools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from toile.engine.errors import StaleValueWarning
from toile.engine.extra_warnings import advise_caller
from toile.engine.promotion import user_stack_level
from toile.engine.source import here, is_internal

MOST_COMPARED = 2  # variables that every call compares
_MOST_FUNCTIONS = 32  # maximum number of functions whose code is read
_MOST_RENEWALS = 4  # new objects with equal values, before a variable is ignored
_SCALARS = (bool, int, float, complex, str, type(None))
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]
_ASSIGN = (_STORE_GLOBAL, dis.opmap["STORE_DEREF"])
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]


class Variable:
    """A variable that a traced function reads, and its value when the function was traced.

    `text` is an expression for its value, in which `{}` stands for `place`; it is empty if the
    variable changes so rarely that calls need not compare it."""

    __slots__ = ("kind", "name", "owner", "place", "read", "text", "value", "renewals")

    def __init__(self, kind: str, name: str, owner: str, place: Any, text: str,
                 read: Callable[[], Any]):
        self.kind, self.name, self.owner, self.place = kind, name, owner, place
        self.text, self.read = text, read
        self.value, self.renewals = read(), 0


class Captured:
    """The variables that a traced function reads."""

    __slots__ = ("found", "variables", "function")

    def __init__(self, fun: Any, name: str):
        self.function = name
        self.found = self.variables = list(_variables(fun))

    def traced_again(self) -> bool:
        """Remember the present values, which the newest traced form uses.

        Returns whether fast paths compare other values."""
        before = self.conditions()
        self.variables = list(self.found)
        for v in self.variables:
            v.value, v.renewals = _current(v), 0
        after = self.conditions()
        return len(before) != len(after) or any(
            old[2] is not new[2] for old, new in zip(before, after, strict=True)
        )

    def conditions(self) -> list[tuple[str, Any, Any]]:
        """What a generated path compares: expressions, the `{}` in them, and the known values."""
        likely = [v for v in self.variables if v.text]
        return [(v.text, v.place, v.value) for v in likely[:MOST_COMPARED]]

    def check(self) -> bool:
        """Warn about variables whose values have changed, and do not watch them any longer.

        Returns whether fast paths compare other values."""
        moved = [v for v in self.variables if _current(v) is not v.value]
        for v in moved:
            new = _current(v)
            v.renewals += 1
            if not _equal(v.value, new):
                self._ignore(v)
                self._warn(v, new)
            elif v.renewals == _MOST_RENEWALS:
                self._ignore(v)
            else:
                v.value = new
        return bool(moved)

    def _ignore(self, v: Variable) -> None:
        self.variables = [other for other in self.variables if other is not v]

    def _warn(self, v: Variable, new: Any) -> None:
        now = "is deleted now" if new is _MISSING else f"is {_shown(new)} now"
        reader = "it" if v.owner == self.function else v.owner
        advise_caller(
            f"jit: {self.function} was traced when {v.kind} `{v.name}`, which {reader} reads, was "
            f"{_shown(v.value)}; it {now}, but the compiled function still uses the old value (pass"
            f" `{v.name}` as an argument, static if shapes depend on it, or call "
            f"{self.function}.clear_cache() after a change){here()}",
            StaleValueWarning,
            stacklevel=user_stack_level(),
        )


_MISSING = object()


def _current(v: Variable) -> Any:
    try:
        return v.read()
    except (KeyError, ValueError, IndexError, TypeError, AttributeError):  # deleted
        return _MISSING


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ----------------------------------------------------------------------------- finding variables


def _variables(fun: Any) -> Iterator[Variable]:
    """The variables that a function, and the functions that it calls, read."""
    seen: set[Any] = set()
    todo = [fun]
    found: set[tuple[int, str]] = set()
    while todo and len(seen) < _MOST_FUNCTIONS:
        fun = _plain(todo.pop(0))
        if fun is None or fun in seen or is_internal(fun.__code__):
            continue
        seen.add(fun)
        for v in _read_by(fun):
            value = v.value
            if isinstance(value, _FUNCTIONS) or _wrapped(value) is not None:
                todo.append(value)
            elif _is_simple(value) and (id(v.place), v.name) not in found:
                found.add((id(v.place), v.name))
                yield v


_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)


def _wrapped(fun: Any) -> Any:
    """The function to which a decorator was applied, if `fun` is the decorator's result."""
    try:
        return object.__getattribute__(fun, "__dict__").get("__wrapped__")
    except AttributeError:
        return None


def _plain(fun: Any) -> types.FunctionType | None:
    """The Python function behind decorators, methods and partial applications."""
    for _ in range(16):
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif isinstance(fun, types.MethodType):
            fun = fun.__func__
        elif _wrapped(fun) is not None:
            fun = _wrapped(fun)
        else:
            break
    return fun if isinstance(fun, types.FunctionType) else None


def _read_by(fun: types.FunctionType) -> Iterator[Variable]:
    """The variables that a function reads and does not assign."""
    code, scope, owner = fun.__code__, fun.__globals__, fun.__name__
    assigned = _names(code, _ASSIGN)
    for name in _names(code, (_LOAD_GLOBAL,)):
        if name in scope and name not in assigned:
            yield Variable("the global variable", name, owner, scope, f"{{}}[{name!r}]",
                           functools.partial(scope.__getitem__, name))
    for name, cell in zip(code.co_freevars, fun.__closure__ or (), strict=True):
        if name not in assigned and not _is_empty(cell):
            yield Variable("the variable", name, owner, cell, "{}.cell_contents",
                           functools.partial(getattr, cell, "cell_contents"))
    # A strong reference would keep the function, and all that was compiled for it, alive.
    of = weakref.ref(fun)
    for i, name in enumerate(_defaulted(fun)):
        text = f"{{}}().__defaults__[{i}]" if i == 0 else ""
        yield Variable("the default of the argument", name, owner, of, text,
                       functools.partial(_default, of, i))


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is _MISSING
    except ValueError:  # not assigned yet
        return True


def _defaulted(fun: types.FunctionType) -> tuple[str, ...]:
    """The names of arguments that have defaults."""
    code, count = fun.__code__, len(fun.__defaults__ or ())
    return code.co_varnames[code.co_argcount - count : code.co_argcount]


def _default(of: Any, i: int) -> Any:
    return of().__defaults__[i]


def _is_simple(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_simple, value))
    return type(value) in _SCALARS


def _names(code: types.CodeType, wanted: tuple[int, ...]) -> list[str]:
    """The variables that instructions of a function, or of functions defined inside it, use."""
    names, high, raw = [], 0, code.co_code
    for i in range(0, len(raw), 2):
        op, number = raw[i], raw[i + 1] | high
        high = number << 8 if op == _EXTENDED_ARG else 0
        if op not in wanted:
            continue
        if op == _LOAD_GLOBAL:
            names.append(code.co_names[number >> 1])
        elif op == _STORE_GLOBAL:
            names.append(code.co_names[number])
        else:
            names.append((*code.co_varnames, *_cells(code))[number])
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names += _names(inner, wanted)
    return list(dict.fromkeys(names))


def _cells(code: types.CodeType) -> list[str]:
    """The variables that follow the local ones in a frame; an argument in a cell counts as local.
    """
    own = [name for name in code.co_cellvars if name not in code.co_varnames]
    return [*own, *code.co_freevars]
