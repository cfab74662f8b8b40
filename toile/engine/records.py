"""Dataclasses that are fast to define: `dataclasses.dataclass` without compiling source text.

Python's decorator generates and compiles the source of five methods for each class. Because
operations are dataclasses, this would take most of the time of `import toile`. Here, each method is
compiled once for each number of fields, and copied with the field names of the class inserted; the
copies are as fast as the originals. Classes that need other features use Python's decorator.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import inspect
import reprlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from toile.engine.source import here

_PUT = "_put_of_toile"
_FIELD = "_FIELD"  # the kind of a field that is neither a ClassVar nor an InitVar


@functools.cache
def _template(kind: str, count: int) -> CodeType:
    """The code of a method for `count` fields, with placeholder names."""
    fields = [f"field_{i}_" for i in range(count)]
    mine, theirs = ("".join(f"{who}.{f}, " for f in fields) for who in ("self", "other"))
    if kind == "__eq__":
        text = (
            "def f(self, other):\n  if other.__class__ is self.__class__:\n"
            f"    return ({mine}) == ({theirs})\n  return NotImplemented"
        )
    elif kind == "__hash__":
        text = f"def f(self):\n  return hash(({mine}))"
    elif kind == "__repr__":
        shown = ", ".join(f"{f}={{self.{f}!r}}" for f in fields)
        text = f"def f(self):\n  return self.__class__.__qualname__ + f'({shown})'"
    else:  # `__init__`, of a frozen class or one that assigns, perhaps with __post_init__
        line = f"{_PUT}(self, '{{0}}', {{0}})" if kind.startswith("frozen") else "self.{0} = {0}"
        lines = [line.format(f) for f in fields]
        lines.append("self.__post_init__()" if kind.endswith("post") else "pass")
        text = f"def f({', '.join(['self', *fields])}):\n    " + "\n    ".join(lines)
        text = f"def around({_PUT}):\n  {text}\n  return f"
    code = compile(text, __file__, "exec")
    while code.co_name != "f":
        code = next(c for c in code.co_consts if isinstance(c, CodeType))
    return code


def _rename(text: str, names: Sequence[str]) -> str:
    """A name or a piece of text of a template, with the field's name inserted."""
    before, found, rest = text.partition("field_")
    if not found:
        return text
    number, _, after = rest.partition("_")
    return before + names[int(number)] + after


def method(cls: type, name: str, names: Sequence[str], kind: str | None = None) -> Any:
    """`__init__`, `__eq__`, `__hash__` or `__repr__` of a dataclass with the fields `names`."""
    code = _template(kind or name, len(names))

    def renamed(found: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([_rename(x, names) if x.__class__ is str else x for x in found])

    code = code.replace(
        co_name=name,
        co_qualname=f"{cls.__qualname__}.{name}",
        co_names=renamed(code.co_names),
        co_varnames=renamed(code.co_varnames),
        co_consts=renamed(code.co_consts),
    )
    scope = _globals
    if name == "__init__":  # annotations may be strings, with names of the class's module
        scope = getattr(sys.modules.get(cls.__module__), "__dict__", _globals)
    made = FunctionType(code, scope, name, None, _puts if code.co_freevars else None)
    made.__module__ = cls.__module__
    return made


_globals = {"__builtins__": __builtins__}
_puts = (CellType(object.__setattr__),)


def _named(cls: type, function: Any) -> Any:
    """A function of this module as a method of `cls`."""
    function.__qualname__ = f"{cls.__qualname__}.{function.__name__}"
    function.__module__ = cls.__module__
    return function


def _freeze(cls: Any, names: frozenset[str]) -> None:
    """Refuse assignments to fields and, in instances of `cls` itself, to any attribute."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    cls.__setattr__, cls.__delattr__ = _named(cls, __setattr__), _named(cls, __delattr__)


@dataclasses.dataclass
class _Plain:
    """A sample dataclass; the attributes that Python gives it are copied to our dataclasses."""

    field: int = 0


@dataclasses.dataclass(frozen=True)
class _Frozen:
    """The same, frozen."""


_PARAMS = {False: _Plain, True: _Frozen}
_KIND = dataclasses.fields(_Plain)[0]._field_type  # type: ignore[attr-defined]


def _plain_fields(cls: type, annotations: dict[str, Any]) -> dict[str, Any] | None:
    """The fields that a class adds, if all of them have simple definitions; else None."""
    fields = {}
    for name, kind in annotations.items():
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if kind.__class__ is not str or "Var" in kind or "KW_ONLY" in kind:
            return None  # perhaps not a field
        if isinstance(default, dataclasses.Field) or default.__class__.__hash__ is None:
            return None
        fields[name] = made = dataclasses.field(default=default)
        made.name, made.type, made.kw_only = name, kind, False
        made._field_type = _KIND
    return fields


def _own_fields(cls: type, annotations: dict[str, Any]) -> dict[str, Any]:
    """The fields that a class adds, made by Python's decorator on an otherwise empty class."""
    plain = _plain_fields(cls, annotations)
    if plain is not None:
        return plain
    body = {name: cls.__dict__[name] for name in annotations if name in cls.__dict__}
    body |= {"__annotations__": annotations, "__module__": cls.__module__, "__doc__": "fields"}
    bare = type(cls.__name__, (), body)
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False)(bare)
    return made.__dataclass_fields__


def _is_descriptor(default: Any) -> bool:
    """Whether a default is a descriptor, which must be evaluated on its class, and only once."""
    kind = type(default)
    return kind not in (FunctionType, dataclasses.Field) and (
        hasattr(kind, "__set_name__") or hasattr(kind, "__get__"))


def _fields(cls: type, frozen: bool) -> dict[str, Any] | None:
    """All fields by name; None if the class needs Python's own decorator."""
    body = cls.__dict__
    if sys.version_info >= (3, 14):  # stores annotations elsewhere
        return None
    if frozen and not body.keys().isdisjoint(("__setattr__", "__delattr__")):
        return None
    annotations = body.get("__annotations__", {})
    if any(isinstance(x, dataclasses.Field) and n not in annotations for n, x in body.items()):
        return None  # an error, raised by Python's decorator
    if any(_is_descriptor(body[n]) if n in body else hasattr(cls, n) for n in annotations):
        return None
    fields: dict[str, Any] = {}
    for base in cls.__mro__[-1:0:-1]:
        found = getattr(base, "__dataclass_fields__", None)
        if found is not None:
            if base.__dataclass_params__.frozen is not frozen:  # type: ignore[attr-defined]
                return None
            fields.update(found)
    if annotations:
        fields.update(_own_fields(cls, annotations))
    return fields if _are_plain(fields.values()) else None


def _are_plain(fields: Iterable[Any]) -> bool:
    """Whether templates can handle all fields: positional, those with a default last."""
    optional = False
    for f in fields:
        if f._field_type.name == "_FIELD_CLASSVAR":
            continue
        without = f.default is dataclasses.MISSING
        if (
            f._field_type.name != _FIELD
            or (without and (optional or f.default_factory is not dataclasses.MISSING))
            or not f.init
            or f.kw_only
            or f.hash is not None
            or f.name == "self"
        ):
            return False
        optional = not without
    return True


def signature_text(cls: type) -> str:
    """The docstring of a dataclass that has none."""
    text = ""
    with contextlib.suppress(TypeError, ValueError):  # some have no signature
        text = str(inspect.signature(cls)).replace(" -> None", "")
    return cls.__name__ + text


def _init(cls: Any, fields: Sequence[Any], names: Sequence[str], frozen: bool) -> Any:
    """`__init__` of a dataclass."""
    kind = "frozen" if frozen else "assigning"
    kind += " post" if hasattr(cls, "__post_init__") else ""
    made = method(cls, "__init__", names, kind)
    made.__annotations__ = {**{f.name: f.type for f in fields}, "return": None}
    made.__defaults__ = (
        tuple([f.default for f in fields if f.default is not dataclasses.MISSING]) or None
    )
    return made


def _add_comparison(cls: Any, names: Sequence[str], frozen: bool) -> None:
    """Give a class `__eq__` and `__hash__` over some of its fields, unless it defines them."""
    body = cls.__dict__
    # A class that defines __eq__ but not __hash__ has __hash__ = None.
    hashed = "__hash__" in body and not (body["__hash__"] is None and "__eq__" in body)
    if "__eq__" not in body:
        cls.__eq__ = method(cls, "__eq__", names)
    if not hashed:
        cls.__hash__ = method(cls, "__hash__", names) if frozen else None


def _put_defaults(cls: Any, fields: dict[str, Any]) -> None:
    """Replace each `field(...)` in the class by the field's default, or remove it."""
    body = cls.__dict__
    for name in body.get("__annotations__", ()):
        if isinstance(body.get(name), dataclasses.Field):
            if fields[name].default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, fields[name].default)


def _quick(cls: Any, frozen: bool) -> Any:
    """`dataclasses.dataclass(frozen=frozen)(cls)`, made from templates."""
    fields = _fields(cls, frozen)
    body = cls.__dict__
    if fields is None:
        return dataclasses.dataclass(frozen=frozen)(cls)
    _put_defaults(cls, fields)
    pattern: Any = _PARAMS[frozen]
    cls.__dataclass_params__ = pattern.__dataclass_params__
    cls.__dataclass_fields__ = fields
    own = [f for f in fields.values() if f._field_type.name == _FIELD]
    names = tuple([f.name for f in own])
    if "__init__" not in body:
        cls.__init__ = _init(cls, own, names, frozen)
    if "__repr__" not in body:
        shown = method(cls, "__repr__", [f.name for f in own if f.repr])
        cls.__repr__ = reprlib.recursive_repr("...")(shown)
    _add_comparison(cls, [f.name for f in own if f.compare], frozen)
    if frozen:
        _freeze(cls, frozenset(names))
    if "__match_args__" not in body:
        setattr(cls, "__match_args__", names)  # noqa: B010  mypy: not all classes have it
    if "__replace__" in pattern.__dict__ and "__replace__" not in body:  # Python 3.13
        cls.__replace__ = pattern.__replace__
    if not cls.__doc__:
        cls.__doc__ = signature_text(cls)
    abc.update_abstractmethods(cls)
    return cls


@contextlib.contextmanager
def defining(cls: type) -> Iterator[None]:
    """Raise errors about the fields of a class that is being defined with advice."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "\n  at " in str(error):
            raise
        fix = "give every field after one with a default a default, too"
        if "mutable default" in str(error):
            fix = "use a tuple as the default, or dataclasses.field(default_factory=...)"
        raise type(error)(f"{error} (fields of {cls.__name__}: {fix}){here()}") from None


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, **options: Any) -> Any:
        """Python's `dataclasses.dataclass`, faster for classes with simple fields."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, **options)
        if options:
            return dataclasses.dataclass(frozen=frozen, **options)(cls)
        return _quick(cls, frozen)
