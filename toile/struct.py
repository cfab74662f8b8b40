"""Dataclasses that are tree nodes, so that transformations apply to their fields.

A field that is declared with `field(pytree_node=False)` belongs to the structure of the tree: its
value is compared, but it is not mapped over, traced or saved.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, dataclass_transform, overload

from toile.engine import records
from toile.engine.source import describe, here
from toile.engine.suggestions import did_you_mean
from toile.tree_util import register_dataclass

__all__ = ["PyTreeNode", "dataclass", "field"]

_T = TypeVar("_T")


def field(
    pytree_node: bool = True, *, metadata: Mapping[str, Any] | None = None, **kwargs: object
) -> Any:
    """Declare a dataclass field as a child of the tree node or as part of the tree's structure.

    Args:
        pytree_node: whether the value is a child of the tree node. If False, the value belongs to
            the structure: it is compared and hashed, and transformations do not change it.
        metadata: information that is stored with the field, as for `dataclasses.field`.
        **kwargs: other options of `dataclasses.field`, such as `default`.

    Returns:
        A field to assign to an annotated attribute of the class.

    >>> from toile import struct
    >>> @struct.dataclass
    ... class Line:
    ...     slope: float
    ...     unit: str = struct.field(pytree_node=False, default="m")
    >>> toile.tree.leaves(Line(1.5))
    [1.5]
    """
    marked = {**(metadata or {}), "pytree_node": pytree_node}
    options: dict[str, Any] = kwargs
    return dataclasses.field(metadata=marked, **options)


@overload
@dataclass_transform(field_specifiers=(field,))
def dataclass(clz: _T, **kwargs: Any) -> _T: ...


@overload
@dataclass_transform(field_specifiers=(field,))
def dataclass(**kwargs: Any) -> Callable[[_T], _T]: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(clz: _T | None = None, **kwargs: object) -> _T | Callable[[_T], _T]:
    """Turn a class into a frozen dataclass whose instances are tree nodes.

    Instances have a method `replace(**updates)` that returns a copy with some field values
    replaced.

    Args:
        clz: the class; None if the decorator is called with options.
        **kwargs: options of `dataclasses.dataclass`; `frozen` is True by default.

    Returns:
        The class, or a decorator if `clz` is None.

    >>> from toile import struct
    >>> @struct.dataclass
    ... class Line:
    ...     slope: float
    ...     unit: str = struct.field(pytree_node=False, default="m")
    >>> toile.tree.map(lambda x: 2 * x, Line(1.5).replace(unit="s"))
    Line(slope=3.0, unit='s')
    """
    if clz is None:
        return functools.partial(dataclass, **kwargs)
    if "_flax_dataclass" in vars(clz):
        return clz  # already made by this function
    options: dict[str, Any] = {"frozen": True, **kwargs}
    with records.defining(cast(Any, clz)):
        made: Any = records.dataclass(**options)(cast(Any, clz))
    data: list[str] = []
    meta: list[str] = []
    for each in dataclasses.fields(made):
        (data if each.metadata.get("pytree_node", True) else meta).append(each.name)
    made.replace = _replace
    if options["frozen"]:
        made.__setattr__ = _with_advice(made.__setattr__)
    register_dataclass(made, data, meta)
    made._toile_dataclass_fields = tuple(data)
    made._flax_dataclass = True
    return made


def _with_advice(assign: Callable[..., None]) -> Callable[..., None]:
    """The `__setattr__` of a frozen dataclass, whose error names `replace`."""

    def __setattr__(self: Any, name: str, value: Any) -> None:
        try:
            assign(self, name, value)
        except dataclasses.FrozenInstanceError:
            raise dataclasses.FrozenInstanceError(
                f"cannot assign to field {name!r}: needed a new {type(self).__name__}, got an "
                f"assignment of {describe(value)} (write x = x.replace({name}=...)){here()}"
            ) from None

    return __setattr__


def _replace(self: Any, **updates: Any) -> Any:
    """Return a copy with some fields replaced."""
    if not updates.keys() <= self.__dataclass_fields__.keys():
        raise TypeError(unknown_fields(type(self), updates) + here())
    return dataclasses.replace(self, **updates)


def unknown_fields(cls: Any, given: Mapping[str, Any], more: str = "") -> str:
    """The text of the error about values for fields that a dataclass does not have."""
    fields = [each.name for each in dataclasses.fields(cls)]
    name = next(name for name in given if name not in fields)
    near = did_you_mean(name, fields)
    return (
        f"{cls.__name__}.__init__() got an unexpected keyword argument {name!r}: needed fields of "
        f"{cls.__name__}, which are {', '.join(fields)}{near or more}"
    )


_replace.__name__ = _replace.__qualname__ = "replace"
TNode = TypeVar("TNode", bound="PyTreeNode")


@dataclass_transform(field_specifiers=(field,))
class PyTreeNode:
    """Base class of dataclasses that are tree nodes; an alternative to the decorator `dataclass`.

    Args:
        *args, **kwargs: values of the fields of the subclass.

    >>> from toile import struct
    >>> class Line(struct.PyTreeNode):
    ...     slope: float
    ...     unit: str = struct.field(pytree_node=False, default="m")
    >>> toile.tree.leaves(Line(1.5))
    [1.5]
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__()
        dataclass(cls, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__}: derive a class with fields from it")

    def replace(self: TNode, **overrides: Any) -> TNode:
        """Return a copy with some fields replaced.

        Args:
            **overrides: new values of the fields to replace.
        """
        raise NotImplementedError(f"{type(self).__name__}: derive a class with fields from it")
