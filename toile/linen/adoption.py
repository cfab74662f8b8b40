"""Values that modules keep in attributes: containers are frozen, modules inside them found.

A module inside a container is named by the attribute and its keys: `layers_0`, `heads_left_1`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.core.frozen_dict import FrozenDict
from toile.core.variables import Variable

look_inside: dict[type, bool] = {}  # by type of value: whether there may be something


def is_plain(value: Any) -> bool:
    """Whether an attribute can be kept as it is: nothing to freeze, no module or Variable."""
    kind = value.__class__
    look = look_inside.get(kind)
    if look is None:
        look = issubclass(kind, dict | FrozenDict | list | tuple) or bool(
            hasattr(kind, "_call_wrapped_method")
            or hasattr(kind, "_toile_dataclass_fields")
            or issubclass(kind, Variable)
        )
        if len(look_inside) > 10_000:  # classes made in a loop
            look_inside.clear()
        look_inside[kind] = look
    if not look:
        return True
    return kind is tuple and all(look_inside.get(v.__class__) is False for v in value)


def freeze_attr(val: Any) -> Any:
    """Dicts become FrozenDicts and lists tuples, all the way down."""
    if isinstance(val, dict | FrozenDict):
        return FrozenDict({k: freeze_attr(v) for k, v in val.items()})
    if isinstance(val, tuple):
        if hasattr(val, "_fields") or type(val).__name__ == "PartitionSpec":
            return type(val)(*[freeze_attr(v) for v in val])
        return tuple(freeze_attr(v) for v in val)
    if isinstance(val, list):
        return tuple(freeze_attr(v) for v in val)
    return val


def map_leaves(fn: Callable[[str, Any], Any], value: Any) -> Any:
    """Apply `fn(suffix, leaf)` through dicts, lists, tuples and struct dataclasses; other mappings
    and subclasses of lists and tuples are leaves.

    Leaves are visited in the order of their keys as text: the first of several places that hold
    one module names it."""
    leaves: list[tuple[tuple[str, ...], Any]] = []
    rebuild = _flatten(value, (), leaves)
    mapped = {}
    for path, leaf in sorted(leaves, key=lambda item: item[0]):
        mapped[path] = fn("".join(f"_{key}" for key in path), leaf)
    return rebuild(mapped)


def suffixes_and_values(value: Any) -> list[tuple[str, Any]]:
    """(`_key_key`, leaf) for the leaves of a container; ('', value) for anything else."""
    leaves: list[tuple[tuple[str, ...], Any]] = []
    _flatten(value, (), leaves)
    ordered = sorted(leaves, key=lambda item: item[0])
    return [("".join(f"_{key}" for key in path), leaf) for path, leaf in ordered]


def _flatten(value: Any, path: tuple[str, ...], leaves: list[Any]) -> Callable[[Any], Any]:
    """Collect the leaves below `value`; the result puts mapped leaves back, by path."""

    def below(items: Any) -> list[Callable[[Any], Any]]:
        return [_flatten(v, (*path, str(k)), leaves) for k, v in items]

    if isinstance(value, dict | FrozenDict) and value:
        parts = below(value.items())
        make = FrozenDict if isinstance(value, FrozenDict) else dict
        return lambda mapped: make(
            (k, part(mapped)) for k, part in zip(value, parts, strict=True)
        )
    named = isinstance(value, tuple) and hasattr(value, "_fields")
    if (named or type(value) in (list, tuple)) and value:
        parts = below(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
        if named:
            return lambda mapped: type(value)(*[part(mapped) for part in parts])
        return lambda mapped: type(value)([part(mapped) for part in parts])
    fields = getattr(type(value), "_toile_dataclass_fields", None)
    if fields:
        parts = below((k, getattr(value, k)) for k in fields)
        return lambda mapped: value.replace(
            **{k: part(mapped) for k, part in zip(fields, parts, strict=True)}
        )
    leaves.append((path, value))
    return lambda mapped: mapped[path]
