"""Keyword-only fields of modules, under Flax's names, based on Python's `dataclasses`.

This file adds two features to `dataclasses`. A field that a base class made keyword-only stays
keyword-only if a subclass changes the field's default, and fields can be added from outside the
class body.
"""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import KW_ONLY
from typing import Any

__all__ = ["KW_ONLY", "dataclass", "field"]


def field(*, metadata: Any = None, kw_only: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """Make a dataclass field. A field that is `kw_only` must have a default."""
    if kw_only is True and not {"default", "default_factory"} & set(kwargs):
        raise ValueError("Keyword-only fields with no default are not supported.")
    return dataclasses.field(metadata=metadata, kw_only=kw_only, **kwargs)


def dataclass(cls: Any = None, extra_fields: Any = None, **kwargs: Any) -> Any:
    """Make a dataclass with the two additional features.

    `extra_fields` is a list of (name, type, field) tuples."""

    def wrap(cls: type) -> type:
        add_fields(cls, extra_fields or ())
        keep_kw_only(cls)
        return dataclasses.dataclass(**kwargs)(cls)

    return wrap if cls is None else wrap(cls)


def add_fields(cls: type, fields: Any) -> None:
    """Declare fields as if they were at the end of the class body."""
    annotations = dict(inspect.get_annotations(cls))
    for row in fields:
        if len(row) != 3 or not isinstance(row[0], str) or not isinstance(row[2], _FIELD):
            raise ValueError("Expected extra_fields to a be a list of (name, type, Field) tuples.")
        name, annotation, value = row
        annotations.pop(name, None)
        annotations[name] = annotation
        setattr(cls, name, value)
    cls.__annotations__ = annotations


_FIELD: type = dataclasses.Field


def keep_kw_only(cls: type) -> None:
    """Make a field of `cls` keyword-only if it is keyword-only in a base class."""
    by_name: dict[str, bool] = {}
    for base in reversed(cls.__mro__[1:]):
        for f in getattr(base, "__dataclass_fields__", {}).values():
            by_name[f.name] = f.kw_only
    for name in inspect.get_annotations(cls):
        if not by_name.get(name):
            continue
        default = cls.__dict__.get(name, dataclasses.MISSING)
        if not isinstance(default, dataclasses.Field):
            default = dataclasses.field(default=default)
        if default.kw_only is dataclasses.MISSING:
            default.kw_only = True
        setattr(cls, name, default)
