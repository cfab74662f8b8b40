"""The records that plan data may have: a closed table of classes with the types of their fields.

A `Record` names a class of toile by module and name, both of which stand in toile's own source. Its
fields are those that the class declares (dataclass, NamedTuple, slots, annotations), so that a new
field needs no change here; types are checked where they are known, by writers and readers alike.
Classes are loaded when the first record of theirs is met.
"""

from __future__ import annotations

import enum
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.extended import KEY_IMPLS, KeyDType, key_dtype
from toile.engine.locks import loading

Check = Callable[[Any], bool]


class Unencodable(Exception):
    """A value that is not plan data: it is not kept on disk."""


class Damaged(Exception):
    """Bytes that are not plan data."""


_DTYPES: dict[str, Any] = {d.name: d for d in dtypes.SUPPORTED if d != dtypes.float0}
_DTYPES["float0"] = dtypes.float0
_KEYS = {key_dtype(name).name: key_dtype(name) for name in KEY_IMPLS}
_PLAIN = (type(None), bool, int, float, str, bytes, KeyDType)
# Names that annotations use for other types.
_ALIASES = {
    "Sizes": "tuple[int, ...]",
    "Dims": "tuple[int, ...]",
    "Shape": "tuple[int, ...]",
    "Pairs": "tuple[tuple[int, int], ...]",
    "Groups": "tuple[tuple[int, ...], ...] | None",
}


class Record:
    """A class of the table. `identity`: equal objects are not one, as buffers are not; `flat`: its
    fields are so simple that their size need not be counted; `types`: of fields that the class says
    nothing of; `without`: fields that are not written, which get these values."""

    def __init__(
        self, module: str, name: str, *, identity: bool = False, flat: bool = False,
        types: Mapping[str, str] | None = None, without: Mapping[str, Any] | None = None,
        maker: Callable[[type], Callable[[list[Any]], Any]] | None = None,
    ):
        self.module, self.name, self.identity, self.flat = module, name, identity, flat
        self.types, self.without, self.maker = dict(types or {}), dict(without or {}), maker
        self.number = -1
        self._fields: list[tuple[str, Check]] | None = None

    def cls(self) -> Any:
        """The class, which is loaded now if it was not."""
        found = sys.modules.get(self.module)
        if found is None:
            with loading:
                found = importlib.import_module(self.module)
        return getattr(found, self.name)

    def fields(self, schema: Schema) -> list[tuple[str, Check]]:
        """The names of fields that are written, with what checks them."""
        if self._fields is None:
            known = {**declared(self.cls()), **self.types}
            self._fields = [(name, schema.check(text)) for name, text in known.items()
                            if name not in self.without]
        return self._fields

    def taken(self, x: Any, schema: Schema) -> list[Any]:
        """The fields of an object, in order."""
        if isinstance(x, enum.Enum):
            return [x.name]
        found = []
        fields = self.fields(schema)
        if not _has_all_fields(type(x)):
            more = getattr(x, "__dict__", {}).keys() - self.without.keys() - {n for n, _ in fields}
            if more:
                raise Unencodable(f"{self.name}: fields that the table does not have: {more}")
        for name, fits in fields:
            value = schema.replaced(getattr(x, name))
            if not fits(value):
                raise Unencodable(f"{self.name}.{name}: {type(value).__name__}")
            found.append(value)
        return found

    def made_by(self, schema: Schema) -> Callable[[list[Any]], Any]:
        """What makes an object of its fields."""
        cls = self.cls()
        if self.maker is not None:
            return self.maker(cls)
        if issubclass(cls, enum.Enum):
            members = dict(cls.__members__)
            return lambda values: members[_only(values)]
        fields = self.fields(schema)
        by_call = _has_all_fields(cls) or not fields
        names = [name for name, _ in fields]
        checks = [fits for _, fits in fields]
        without = list(self.without.items())
        in_order = names == list(declared(cls))[: len(names)]

        def make(values: list[Any]) -> Any:
            if len(values) != len(checks):
                raise Damaged(f"it has a {self.name} of {len(values)} fields")
            for fits, value, name in zip(checks, values, names, strict=True):
                if not fits(value):
                    raise Damaged(f"its {self.name}.{name} is a {type(value).__name__}")
            if by_call:
                return cls(*values) if in_order else cls(**dict(zip(names, values, strict=True)))
            made = cls.__new__(cls)
            for name, value in zip(names, values, strict=True):
                setattr(made, name, value)
            for name, value in without:
                setattr(made, name, value)
            return made

        return make


def _only(values: list[Any]) -> Any:
    (value,) = values
    return value


def _has_all_fields(cls: Any) -> bool:
    """Whether a class declares all that its objects are made of."""
    return issubclass(cls, tuple) or hasattr(cls, "__dataclass_fields__")


def declared(cls: Any) -> dict[str, str]:
    """The fields that a class declares, with their annotations as text."""
    fields = getattr(cls, "__dataclass_fields__", None)
    if fields is not None:
        return {f.name: _text(f.type) for f in fields.values() if f._field_type.name == "_FIELD"}
    if issubclass(cls, tuple):
        return {name: _text(cls.__annotations__.get(name, "Any")) for name in cls._fields}
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        slots = _slots(base)
        found |= dict.fromkeys(slots, "data")
        if not slots:
            found |= {n: _text(t) for n, t in base.__dict__.get("__annotations__", {}).items()}
    defaults = {n for base in cls.__mro__ for n in base.__dict__ if n not in _slots(base)}
    return {n: t for n, t in found.items() if n not in defaults and n != "__weakref__"}


def _slots(cls: Any) -> tuple[str, ...]:
    found = cls.__dict__.get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def _text(annotation: Any) -> str:
    """An annotation as it stands in the source."""
    text = annotation if annotation.__class__ is str else getattr(
        annotation, "__forward_arg__", None)
    return text or getattr(annotation, "__name__", "Any")


class Schema:
    """A table of records, and what checks their fields.

    `hashable`: names of the records whose objects may be in sets, each hashed by identity or by few
    fields. `families`: names that stand for several types in annotations. `replace` gives what is
    written instead of an object."""

    key_dtype = KeyDType

    def __init__(
        self, records: Iterable[Record], hashable: Sequence[str] = (),
        families: Mapping[str, Sequence[str]] | None = None,
        replace: Callable[[Any], Any] | None = None,
    ):
        self.records = list(records)
        self.names = frozenset(r.name for r in self.records)
        self.families = {"buffer": tuple(hashable), **(families or {})}
        self.replaced = replace or (lambda x: x)
        self._by_name = {(r.module, r.name): r for r in self.records}
        assert len(self._by_name) == len(self.records), "a class is in the table twice"
        for i, r in enumerate(self.records):
            r.number = i
        self.flat = [r.flat for r in self.records]
        self.makers: list[Callable[[list[Any]], Any]] = [self._first(r) for r in self.records]
        self._hashable = [r for r in self.records if r.name in hashable]
        self._found: frozenset[type] | None = None
        self._checks: dict[str, Check] = {}

    def _first(self, record: Record) -> Callable[[list[Any]], Any]:
        """What finds out how to make a record when the first is met."""

        def make(values: list[Any]) -> Any:
            made = self.makers[record.number] = record.made_by(self)
            return made(values)

        return make

    @property
    def hashable(self) -> frozenset[type]:
        """The classes whose objects may be in sets."""
        if self._found is None:
            self._found = frozenset(r.cls() for r in self._hashable)
        return self._found

    def record_of(self, x: Any) -> Record:
        """The record of an object's class; raises Unencodable where there is none."""
        kind = type(x)
        found = self._by_name.get((kind.__module__, kind.__qualname__))
        if found is None or found.cls() is not kind:
            raise Unencodable(f"{kind.__module__}.{kind.__qualname__} is not in the table")
        return found

    # ---- dtypes
    def dtype_name(self, x: Any) -> str:
        name = "float0" if x == dtypes.float0 else x.name
        if (_KEYS if isinstance(x, KeyDType) else _DTYPES).get(name) != x:
            raise Unencodable(f"dtype {x}")
        return name

    def dtype(self, values: list[Any]) -> Any:
        """The dtype of a name."""
        name = _only(values)
        return _DTYPES[name] if name in _DTYPES else _KEYS[name]

    # ---- types of fields
    def check(self, annotation: str) -> Check:
        """Whether a value is of a type, written as in an annotation."""
        found = self._checks.get(annotation)
        if found is None:
            found = self._checks[annotation] = self._checked(annotation.strip())
        return found

    def _checked(self, text: str) -> Check:
        either = _split(text, "|")
        if len(either) > 1:
            checks = [self.check(x) for x in either]
            return lambda x: any([fits(x) for fits in checks])
        if text in _ALIASES:
            return self.check(_ALIASES[text])
        if text.endswith("]"):
            name, _, inner = text[:-1].partition("[")
            return self._container(name, _split(inner, ","))
        if text in _SIMPLE:
            kind = _SIMPLE[text]
            return lambda x: x.__class__ is kind
        if text == "data":
            return lambda x: True
        if text == "Any":
            return _is_plain
        if text in ("dtype", "np.dtype"):
            return lambda x: isinstance(x, (np.dtype, KeyDType))
        names = frozenset(self.families.get(text, (text,)))
        return lambda x: x.__class__.__name__ in names

    def _container(self, name: str, inner: list[str]) -> Check:
        if name not in _CONTAINERS:
            return lambda x: False
        kind: type = _CONTAINERS[name]
        if name == "tuple" and inner[-1] != "...":
            checks = [self.check(x) for x in inner]
            return lambda x: (x.__class__ is kind and len(x) == len(checks)
                              and all([fits(y) for fits, y in zip(checks, x, strict=True)]))
        if inner[0] == "int":
            return lambda x: x.__class__ is kind and {y.__class__ for y in x} <= _INT
        fits = self.check(inner[0])
        return lambda x: x.__class__ is kind and all([fits(y) for y in x])


_INT = {int}
_SIMPLE = {"int": int, "bool": bool, "str": str, "float": float, "bytes": bytes,
           "None": type(None), "np.ndarray": np.ndarray}
_CONTAINERS: dict[str, type] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}


def _is_plain(x: Any) -> bool:
    """Whether a parameter of an operation is a number, a text, a dtype, an enum or a tuple."""
    if x.__class__ is tuple:
        return all([_is_plain(y) for y in x])
    return x.__class__ in _PLAIN or isinstance(x, (np.dtype, enum.Enum))


def _split(text: str, at: str) -> list[str]:
    """The parts of an annotation between marks that are in no brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == at and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]
