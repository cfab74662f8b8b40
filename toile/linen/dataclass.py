"""How subclasses of Module become dataclasses.

Python's own transform makes the fields, equality and hash; the `__init__` is ours. It writes the
instance's dict directly, because Module's `__setattr__` would be called for every field of every
layer otherwise, which is a third of the cost of building one.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from toile import errors
from toile.linen.adoption import is_plain, look_inside
from toile.linen.context import unspecified_parent
from toile.linen.kw_only_dataclasses import add_fields, field, keep_kw_only

_INITVAR = "_FIELD_INITVAR"


def transform(cls: type, kw_only: bool, parent_type: Any, own_post_init: bool) -> None:
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
    own_init = "__init__" in cls.__dict__
    dataclasses.dataclass(
        unsafe_hash="__hash__" not in cls.__dict__, repr=False, kw_only=kw_only
    )(cls)
    fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
    for name in ("parent", "name"):  # last, also where a base class had them before
        fields[name] = fields.pop(name)
    if not own_init:
        cls.__init__ = _quick_init(cls, own_post_init)  # type: ignore[misc]
    cls.__hash__ = _checked_hash(cls.__hash__)  # type: ignore[method-assign]
    cls._own_fields = tuple(  # type: ignore[attr-defined]
        f.name for f in dataclasses.fields(cls) if f.init and f.name not in ("parent", "name")
    )


def _quick_init(cls: type, own_post_init: bool) -> Callable[..., None]:
    """An `__init__` with the parameters of the dataclass's, which writes the dict at once."""
    native = cls.__init__  # type: ignore[misc]
    fields = [
        f
        for f in cls.__dataclass_fields__.values()  # type: ignore[attr-defined]
        if f._field_type.name in ("_FIELD", _INITVAR)
    ]
    known: dict[str, Any] = {"_missing": dataclasses.MISSING, "_look": look_inside.get}
    body, passed = ["_dict = self.__dict__"], []
    for f in fields:
        if f._field_type.name == _INITVAR:
            passed.append(f.name)
            continue
        line = _assignment(cls, f, known)
        if line:
            body.append(line)
    if not own_post_init:  # a `__post_init__` of the user's may change fields
        body += _candidates(cls, fields)
    body.append(f"self.__post_init__({', '.join(passed)})")
    by_position = [_parameter(f, known) for f in fields if f.init and not f.kw_only]
    by_name = [_parameter(f, known) for f in fields if f.init and f.kw_only]
    parameters = ["self", *by_position, *(["*", *by_name] if by_name else [])]
    text = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body)
    exec(compile(text, __file__, "exec"), known)  # a frame of toile's, not of the user's
    init = known["__init__"]
    functools.update_wrapper(init, native)
    del init.__wrapped__
    init.__signature__ = inspect.signature(native)
    return init


def _candidates(cls: type, fields: list[Any]) -> list[str]:
    """Lines of `__init__` that note which fields may hold containers or modules.

    Most fields of most layers have their defaults, which are known to be plain."""
    lines = ["_dict['_candidates'] = ()"]
    for f in fields:
        if not f.init or f._field_type.name == _INITVAR or f.name in ("parent", "name"):
            continue
        plain = f.default is not dataclasses.MISSING and is_plain(f.default)
        test = f"{f.name} is not _default_{f.name} and " if plain else ""
        value = f"_dict['{f.name}']" if f.default_factory is not dataclasses.MISSING else f.name
        if hasattr(type(getattr(cls, f.name, None)), "__set__"):
            value = "self"  # a descriptor has it
        noted = f"_dict['_candidates'] += ('{f.name}',)"
        lines.append(f"if {test}_look({value}.__class__, True): {noted}")
    return lines


def _parameter(f: Any, known: dict[str, Any]) -> str:
    """A parameter of `__init__` with its default."""
    if f.default is not dataclasses.MISSING:
        known[f"_default_{f.name}"] = f.default
        return f"{f.name}=_default_{f.name}"
    if f.default_factory is not dataclasses.MISSING:
        return f"{f.name}=_missing"
    return f.name


def _assignment(cls: type, f: Any, known: dict[str, Any]) -> str:
    """The line of `__init__` that sets a field; none for what the class holds."""
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
    """Bound modules have no hash, and one that cannot be computed says whose."""
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
