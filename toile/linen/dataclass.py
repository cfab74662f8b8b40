"""How subclasses of Module become dataclasses.

`dataclasses.dataclass` creates the fields, and toile creates the `__init__` method and the methods
for equality and hashing. `__init__` writes directly into the instance's `__dict__`. Otherwise,
Module's `__setattr__` would be called for every field of every layer, which would account for a
third of the time needed to construct a layer.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from toile import errors
from toile.engine.records import defining, method, signature_text
from toile.engine.source import here
from toile.linen.adoption import is_plain, look_inside
from toile.linen.context import unspecified_parent
from toile.linen.kw_only_dataclasses import add_fields, field, keep_kw_only

_INITVAR = "_FIELD_INITVAR"


def transform(cls: Any, kw_only: bool, parent_type: Any, own_post_init: bool) -> None:
    """Make `cls` a dataclass with the keyword-only fields `parent` and `name`."""
    annotations = dict(inspect.get_annotations(cls))
    name_types = ("str", str, str | None, "str | None", "Optional[str]")
    if (
        annotations.get("parent", parent_type) != parent_type
        or annotations.get("name", str) not in name_types
    ):
        raise errors.ReservedModuleAttributeError(annotations)
    # Fields that are set in `setup` have no value yet when modules are compared or hashed.
    for name in annotations:
        found = getattr(cls, name, None)
        if isinstance(found, dataclasses.Field) and not found.init:
            found.compare = found.repr = False
            found.hash = False
    add_fields(
        cls,
        (
            ("parent", parent_type, field(repr=False, default=unspecified_parent, kw_only=True)),
            ("name", str | None, field(default=None, kw_only=True)),
        ),
    )
    keep_kw_only(cls)
    _add_methods(cls, kw_only, own_post_init)
    cls.__hash__ = _checked_hash(cls.__hash__)
    cls._own_fields = tuple(
        f.name for f in dataclasses.fields(cls) if f.init and f.name not in ("parent", "name")
    )


def _add_methods(cls: Any, kw_only: bool, own_post_init: bool) -> None:
    """Make the fields with `dataclasses.dataclass`, and then add the methods."""
    own = cls.__dict__
    own_init, own_hash, own_doc = "__init__" in own, "__hash__" in own, cls.__doc__
    cls.__doc__ = own_doc or "fields"
    with defining(cls):
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    noted = cls.__dataclass_params__
    noted.init, noted.eq, noted.unsafe_hash = True, True, not own_hash
    fields = cls.__dataclass_fields__
    real = [f for f in fields.values() if f._field_type.name == "_FIELD"]
    if "__eq__" not in own:
        cls.__eq__ = method(cls, "__eq__", [f.name for f in real if f.compare])
    if not own_hash:
        hashed = [f.name for f in real if (f.compare if f.hash is None else f.hash)]
        cls.__hash__ = method(cls, "__hash__", hashed)
    for name in ("parent", "name"):  # last, also where a base class had them before
        fields[name] = fields.pop(name)
    _check_order([f for f in fields.values() if _is_variable(f) and f.init and not f.kw_only])
    if not own_init:
        cls.__init__ = _quick_init(cls, own_post_init)
    if not own_doc:
        cls.__doc__ = signature_text(cls)


class _Factory:
    """The default of a field that has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_missing = _Factory()


def _quick_init(cls: Any, own_post_init: bool) -> Callable[..., None]:
    """An `__init__` with the parameters of a dataclass, which writes directly into `__dict__`."""
    fields = [f for f in cls.__dataclass_fields__.values() if _is_variable(f)]
    known: dict[str, Any] = {"_missing": _missing, "_look": look_inside.get, "_cls": cls}
    body, passed = ["_dict = self.__dict__"], []
    for f in fields:
        if f._field_type.name == _INITVAR:
            passed.append(f.name)
            continue
        line = _assignment(cls, f, known)
        if line:
            body.append(line)
    if not own_post_init:  # a user's `__post_init__` may change fields
        body += _candidates(cls, fields)
    body.append(f"self.__post_init__({', '.join(passed)})")
    by_position = [f for f in fields if f.init and not f.kw_only]
    by_name = [f for f in fields if f.init and f.kw_only]
    parameters = ["self", *[_parameter(f, known) for f in by_position]]
    parameters += ["*", *[_parameter(f, known) for f in by_name]] if by_name else []
    text = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body)
    exec(compile(text, __file__, "exec"), known)  # a frame of toile, not of the user
    init = known["__init__"]
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    init.__annotations__ = {f.name: f.type for f in (*by_position, *by_name)} | {"return": None}
    return init


def _is_variable(f: Any) -> bool:
    return f._field_type.name in ("_FIELD", _INITVAR)


def _check_order(fields: list[Any]) -> None:
    """Raise an error if a field without a default follows one with a default."""
    optional = False
    for f in fields:
        if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING:
            optional = True
        elif optional:
            raise TypeError(
                f"non-default argument {f.name!r} follows default argument: needed the fields "
                f"without a default first (move {f.name!r} up, or give it a default){here()}"
            )


def _candidates(cls: type, fields: list[Any]) -> list[str]:
    """The lines of `__init__` that record which fields may contain containers or modules.

    Most fields of most layers have their default values, which are known to contain neither."""
    lines = []
    for f in fields:
        if not f.init or f._field_type.name == _INITVAR or f.name in ("parent", "name"):
            continue
        plain = f.default is not dataclasses.MISSING and is_plain(f.default)
        test = f"{f.name} is not _default_{f.name} and " if plain else ""
        value = f"_dict['{f.name}']" if f.default_factory is not dataclasses.MISSING else f.name
        if hasattr(type(getattr(cls, f.name, None)), "__set__"):
            value = "self"  # a descriptor has it
        noted = f"_dict['_candidates'] += ('{f.name}',)"
        lines.append(f"  if {test}_look({value}.__class__, True): {noted}")
    # A subclass that defines `__init__` may have set other fields before this call.
    return ["if self.__class__ is _cls:", "  _dict['_candidates'] = ()", *lines]


def _parameter(f: Any, known: dict[str, Any]) -> str:
    """A parameter of `__init__` with its default."""
    if f.default is not dataclasses.MISSING:
        known[f"_default_{f.name}"] = f.default
        return f"{f.name}=_default_{f.name}"
    if f.default_factory is not dataclasses.MISSING:
        return f"{f.name}=_missing"
    return f.name


def _assignment(cls: type, f: Any, known: dict[str, Any]) -> str:
    """The line of `__init__` that sets a field; empty if `__init__` does not set it."""
    value = f.name
    if f.default_factory is not dataclasses.MISSING:
        known[f"_factory_{f.name}"] = f.default_factory
        made = f"_factory_{f.name}()"
        value = f"{made} if {f.name} is _missing else {f.name}" if f.init else made
    elif not f.init:
        return ""
    if f.name == "parent":
        return "_dict['_parent_ref'] = parent"
    if hasattr(type(getattr(cls, f.name, None)), "__set__"):  # a descriptor as a default
        return f"self.{f.name} = {value}"
    return f"_dict['{f.name}'] = {value}"


def _checked_hash(hash_fn: Callable[..., int]) -> Callable[..., int]:
    """A hash function that raises an error for bound modules and names the module in errors."""
    if hasattr(hash_fn, "__wrapped__"):
        return hash_fn

    @functools.wraps(hash_fn)
    def wrapped(self: Any) -> int:
        if self.scope is not None:
            raise TypeError("Can't call __hash__ on modules that hold variables.")
        try:
            return hash_fn(self)
        except TypeError as e:
            raise TypeError(
                "Failed to hash Flax Module.  The module probably contains unhashable attributes "
                f"({e}): use tuples, FrozenDict or functions as fields.  Module={self}"
            ) from e

    return wrapped
