"""The records that plan data may contain: a closed table of classes, with their fields' types.

A `Record` identifies one of toile's classes by its module and name, which are written in toile's
own source. Its fields are those that the class declares (dataclass, NamedTuple, slots,
annotations), so that a new field needs no change here; types are checked where they are known, both
when writing and when reading. A class is imported when it is first needed.
"""

from __future__ import annotations

import enum
import importlib
import operator
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.extended import KEY_IMPLS, KeyDType, key_dtype
from toile.engine.locks import loading

Maker = Callable[[list[Any]], list[Any]]  # makes objects from columns, one for each field


class Check:
    """Checks whether values are of a type."""

    def __init__(self, fits: Callable[[Any], bool]):
        self.fits = fits

    def all_fit(self, xs: Iterable[Any]) -> bool:
        fits = self.fits
        return all(map(fits, xs))


class Classes(Check):
    """Checks whether values are of classes with certain names; caches the classes that passed."""

    def __init__(self, names: frozenset[str]):
        super().__init__(lambda x: self.all_fit((x,)))
        self.names = names
        self.known: set[type] = set()

    def all_fit(self, xs: Iterable[Any]) -> bool:
        found = set(map(type, xs))
        if found <= self.known:
            return True
        if not {kind.__name__ for kind in found} <= self.names:
            return False
        self.known |= found
        return True


class Unencodable(Exception):
    """A value that is not plan data, and so is not stored on disk."""


class Damaged(Exception):
    """Bytes that are not plan data."""


_DTYPES: dict[str, Any] = {d.name: d for d in dtypes.SUPPORTED if d != dtypes.float0}
_DTYPES["float0"] = dtypes.float0
_KEYS = {key_dtype(name).name: key_dtype(name) for name in KEY_IMPLS}
_PLAIN = (type(None), bool, int, float, str, bytes, KeyDType)
# Type aliases that annotations use, and what they stand for.
_ALIASES = {
    "Sizes": "tuple[int, ...]",
    "Dims": "tuple[int, ...]",
    "Shape": "tuple[int, ...]",
    "Pairs": "tuple[tuple[int, int], ...]",
    "Groups": "tuple[tuple[int, ...], ...] | None",
}


class Record:
    """A class in the table.

    `identity`: whether equal objects stay distinct, as buffers must. `types`: types of fields, in
    addition to those that the class declares or in their place. `without`: fields that are not
    written, and the values that they have after reading. `convert`: functions that convert a field
    to its written form and back. `maker`: a function that makes the objects, if calling the class
    is not enough. `also`: another class whose objects are written as if they were of this class."""

    def __init__(self, module: str, name: str, *, identity: bool = False,
                 types: Mapping[str, str] | None = None, without: Mapping[str, Any] | None = None,
                 convert: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] | None = None,
                 maker: Maker | None = None, also: tuple[str, str] | None = None):
        self.module, self.name, self.identity = module, name, identity
        self.types, self.without, self.maker = dict(types or {}), dict(without or {}), maker
        self.convert, self.also = dict(convert or {}), also
        self.number = -1
        self._fields: list[tuple[str, Check]] | None = None
        self._all_of: Callable[[Any], Sequence[Any]] = lambda x: ()

    def cls(self) -> Any:
        """The class; its module is imported if necessary."""
        found = sys.modules.get(self.module)
        if found is None:
            with loading:
                found = importlib.import_module(self.module)
        return getattr(found, self.name)

    def fields(self, schema: Schema) -> list[tuple[str, Check]]:
        """The names of the fields that are written, each with the check of its type."""
        if self._fields is None:
            known = {**declared(self.cls()), **self.types}
            names = [name for name in known if name not in self.without]
            self._all_of = _getter(names)
            self._fields = [(name, schema.check(known[name])) for name in names]
        return self._fields

    def _misfit(self, columns: Sequence[Sequence[Any]], schema: Schema) -> str:
        """What is wrong with the number of fields or the type of one; empty if nothing is."""
        fields = self.fields(schema)
        if len(columns) != len(fields):
            return f"{self.name} with {len(columns)} fields"
        for (name, check), column in zip(fields, columns, strict=True):
            if not check.all_fit(column):
                return f"{self.name}.{name} of another type"
        return ""

    def taken(self, x: Any, schema: Schema) -> Sequence[Any]:
        """The values of an object's fields, in order, as they are written."""
        if isinstance(x, enum.Enum):
            return [x.name]
        fields = self.fields(schema)
        if self.also is None and not _has_all_fields(type(x)):
            more = getattr(x, "__dict__", {}).keys() - self.without.keys() - {n for n, _ in fields}
            if more:
                raise Unencodable(f"{self.name}: fields that the table does not have: {more}")
        if not self.convert:
            return self._all_of(x)
        return [self.convert[name][0](x, value) if name in self.convert else value
                for (name, _), value in zip(fields, self._all_of(x), strict=True)]

    def check(self, rows: Sequence[Sequence[Any]], schema: Schema) -> None:
        """Raise Unencodable if a field of the objects to be written is of another type."""
        if not issubclass(self.cls(), enum.Enum):
            misfit = self._misfit(list(zip(*rows, strict=True)), schema)
            if misfit:
                raise Unencodable(misfit)

    def made_by(self, schema: Schema) -> Maker:
        """The function that makes objects from columns of their fields."""
        cls = self.cls()
        if self.maker is not None:
            make = self.maker
        elif issubclass(cls, enum.Enum):
            members = dict(cls.__members__)
            return lambda columns: [members[name] for name in _only(columns)]
        elif self._by_call(cls, schema):
            make = lambda columns: list(map(cls, *columns)) if columns else [cls()]
        else:
            make = self._set_on(cls, schema)

        def checked(columns: list[Any]) -> list[Any]:
            misfit = self._misfit(columns, schema)
            if misfit:
                raise Damaged(f"it has a {misfit}")
            return make(columns)

        return checked

    def _by_call(self, cls: Any, schema: Schema) -> bool:
        """Whether calling the class with the fields, in order, makes the object."""
        names = [name for name, _ in self.fields(schema)]
        if not names or _has_all_fields(cls):
            return names == list(declared(cls))[: len(names)]
        code = getattr(cls.__init__, "__code__", None)
        return (code is not None and not self.without and not self.convert
                and list(code.co_varnames[1 : code.co_argcount]) == names == list(declared(cls)))

    def _set_on(self, cls: Any, schema: Schema) -> Maker:
        names = [name for name, _ in self.fields(schema)]
        restore = {name: back for name, (_, back) in self.convert.items()}

        def make(columns: list[Any]) -> list[Any]:
            found = [cls.__new__(cls) for _ in columns[0]]
            for name, column in zip(names, columns, strict=True):
                back = restore.get(name)
                for x, value in zip(found, column, strict=True):
                    setattr(x, name, value if back is None else back(value))
            for name, value in self.without.items():
                for x in found:
                    setattr(x, name, value)
            return found

        return make


def _getter(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """A function that returns an object's attributes of these names."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda x: [getattr(x, name) for name in names]


def _only(columns: list[Any]) -> Any:
    (column,) = columns
    return column


def _has_all_fields(cls: Any) -> bool:
    """Whether a class declares all fields of its objects: a NamedTuple or a dataclass does."""
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
    """The text of an annotation."""
    if isinstance(annotation, str):
        return annotation
    return getattr(annotation, "__forward_arg__", "") or getattr(annotation, "__name__", "Any")


class Schema:
    """A table of records, and the checks of their fields.

    `hashable`: names of the records whose objects may be in sets, each hashed by identity or by a
    few fields. `families`: names that stand for several types in annotations. `arrays`: whether the
    data may contain arrays; each is a copy, so that arrays with the same content need more memory
    than the data."""

    key_dtype = KeyDType

    def __init__(self, records: Iterable[Record], hashable: Sequence[str] = (),
                 families: Mapping[str, Sequence[str]] | None = None, arrays: bool = True):
        self.records, self.arrays = list(records), arrays
        self.families = {"buffer": tuple(hashable), **(families or {})}
        self.families |= {r.name: (r.name, r.also[1]) for r in self.records if r.also is not None}
        self._by_name = {(r.module, r.name): r for r in self.records}
        assert len(self._by_name) == len(self.records), "a class is in the table twice"
        self._by_name |= {r.also: r for r in self.records if r.also is not None}
        for i, r in enumerate(self.records):
            r.number = i
        self.makers: list[Maker] = [self._first(r) for r in self.records]
        self._hashable = [r for r in self.records if r.name in hashable]
        self._found: frozenset[type] | None = None
        self._checks: dict[str, Check] = {}

    def _first(self, record: Record) -> Maker:
        """A maker that, when it is first called, is replaced by what `made_by` returns."""

        def make(columns: list[Any]) -> list[Any]:
            made = self.makers[record.number] = record.made_by(self)
            return made(columns)

        return make

    @property
    def hashable(self) -> frozenset[type]:
        """The classes whose objects may be in sets."""
        if self._found is None:
            self._found = frozenset(r.cls() for r in self._hashable)
        return self._found

    def record_of(self, kind: type) -> Record:
        """The record of a class; raises Unencodable if there is none."""
        found = self._by_name.get((kind.__module__, kind.__qualname__))
        if found is None or (found.also is None and found.cls() is not kind):
            raise Unencodable(f"{kind.__module__}.{kind.__qualname__} is not in the table")
        return found

    # ---- dtypes
    def dtype_name(self, x: Any) -> str:
        name = "float0" if x == dtypes.float0 else x.name
        if (_KEYS if isinstance(x, KeyDType) else _DTYPES).get(name) != x:
            raise Unencodable(f"dtype {x}")
        return name

    def dtypes(self, columns: list[Any]) -> list[Any]:
        """The dtypes with the given names."""
        return [_DTYPES[name] if name in _DTYPES else _KEYS[name] for name in _only(columns)]

    # ---- types of fields
    def check(self, annotation: str) -> Check:
        """The check for a type, which is written as in an annotation."""
        found = self._checks.get(annotation)
        if found is None:
            found = self._checks[annotation] = self._checked(annotation.strip())
        return found

    def _checked(self, text: str) -> Check:
        names = self._names(text)
        if names is not None:
            return Classes(names)
        either = _split(text, "|")
        if len(either) > 1:
            checks = [self.check(x) for x in either]
            return Check(lambda x: any(c.fits(x) for c in checks))
        if text in _ALIASES:
            return self.check(_ALIASES[text])
        if text.endswith("]"):
            name, _, inner = text[:-1].partition("[")
            return self._container(name, _split(inner, ","))
        if text == "data":
            return Check(lambda x: True)
        if text == "dtype":
            return Check(lambda x: isinstance(x, (np.dtype, KeyDType)))
        return Check(_is_plain)

    def _names(self, annotation: str) -> frozenset[str] | None:
        """The names of the classes that a type allows; None if names alone do not decide."""
        found: set[str] = set()
        for text in _split(annotation, "|"):
            if text in _ALIASES or text.endswith("]") or text in ("data", "Any", "dtype"):
                return None
            found |= set(self.families.get(text, (_SIMPLE.get(text, text),)))
        return frozenset(found)

    def _container(self, name: str, inner: list[str]) -> Check:
        kind = _CONTAINERS.get(name)
        if kind is None:
            return Check(lambda x: False)
        checks = [self.check(x) for x in inner if x != "..."]
        if kind is tuple and inner[-1] != "...":
            return Check(lambda x: x.__class__ is kind and len(x) == len(checks) and all(
                c.fits(y) for c, y in zip(checks, x, strict=True)))
        all_fit = checks[0].all_fit
        return Check(lambda x: x.__class__ is kind and all_fit(x))


_SIMPLE = {"None": "NoneType", "np.ndarray": "ndarray"}
_CONTAINERS: dict[str, type[Collection]] = {c.__name__: c for c in (tuple, list, set, frozenset)}


def _is_plain(x: Any, depth: int = 4) -> bool:
    """Whether a value is None, a number, text, bytes, dtype or enum member, or a tuple of these."""
    if x.__class__ is tuple:
        return depth > 0 and all(_is_plain(y, depth - 1) for y in x)
    return x.__class__ in _PLAIN or isinstance(x, (np.dtype, enum.Enum))


def _split(text: str, at: str) -> list[str]:
    """The parts of an annotation, split at each `at` that is not inside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "[") - (c == "]")
        if c == at and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [*parts, text[start:].strip()]
