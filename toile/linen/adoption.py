"""Handling the values that are assigned to attributes of modules.

Containers are frozen, and the modules inside them are found. The name of a module inside a
container consists of the attribute's name and the keys, as in `layers_0` or `heads_left_1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from toile.core.frozen_dict import FrozenDict
from toile.core.variables import Variable

Path = tuple[str, ...]

look_inside: dict[type, bool] = {}  # by type: whether its values must be examined


def is_plain(value: Any) -> bool:
    """Whether a value needs no freezing and contains no module or Variable."""
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
    """Convert dicts to FrozenDicts and lists to tuples, recursively."""
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
    """Apply `fn(suffix, leaf)` to the leaves of dicts, lists, tuples and struct dataclasses.

    Other mappings and subclasses of lists and tuples are leaves. Leaves are visited in the order of
    their keys, compared as strings. If several places contain the same module, the first place
    determines the module's name."""
    return _rebuilt(value, (), {path: fn(_suffix(path), leaf) for path, leaf in _ordered(value)})


def suffixes_and_values(value: Any) -> list[tuple[str, Any]]:
    """The pairs (`_key_key`, leaf) of a container; the pair ('', value) for any other value."""
    return [(_suffix(path), leaf) for path, leaf in _ordered(value)]


def _suffix(path: Path) -> str:
    return "".join(f"_{key}" for key in path)


def _ordered(value: Any) -> list[tuple[Path, Any]]:
    """The leaves with their paths, sorted by path."""
    return sorted(_leaves(value, ()), key=lambda item: item[0])


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    parts = _parts(value)
    if parts is None:
        yield path, value
    else:
        keys, values, _ = parts
        for key, part in zip(keys, values, strict=True):
            yield from _leaves(part, (*path, str(key)))


def _rebuilt(value: Any, path: Path, leaves: Mapping[Path, Any]) -> Any:
    """The container with new leaves, which are given by path."""
    parts = _parts(value)
    if parts is None:
        return leaves[path]
    keys, values, make = parts
    pairs = zip(keys, values, strict=True)
    return make([_rebuilt(part, (*path, str(key)), leaves) for key, part in pairs])


def _parts(value: Any) -> tuple[Iterable[Any], Iterable[Any], Callable[[Any], Any]] | None:
    """The keys and values of a container, and a function that rebuilds it; None for a leaf."""
    if isinstance(value, dict | FrozenDict) and value:
        kind = FrozenDict if isinstance(value, FrozenDict) else dict
        return value.keys(), value.values(), lambda xs: kind(zip(value, xs, strict=True))
    named = getattr(value, "_fields", None) if isinstance(value, tuple) else None
    if named is not None and value:
        return named, value, lambda xs: type(value)(*xs)
    if type(value) in (list, tuple) and value:
        return range(len(value)), value, type(value)
    fields = getattr(type(value), "_toile_dataclass_fields", None)
    if fields:
        values = [getattr(value, name) for name in fields]
        return fields, values, lambda xs: value.replace(**dict(zip(fields, xs, strict=True)))
    return None
