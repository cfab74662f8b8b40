"""Fingerprints, which contain everything that a trace of a module depends on, except arrays.

A fingerprint is a flat tuple of (path, value) pairs for the fields of a module, its state and its
scope. Comparing two fingerprints shows what changed. `nn.jit` uses fingerprints as cache keys.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from toile.core.filters import DenyList
from toile.engine.locks import loading
from toile.engine.source import describe, here
from toile.linen.module_functional import Functional

Path = tuple[str, ...]
Item = tuple[Path, Any]

# Types of values without parts, which most fields have.
_ATOMS = {str, bytes, bool, int, float, type(None), type, FunctionType}
_STATE = ("in_compact_method", "in_setup", "setup_called", "is_initialized", "autoname_cursor")
_SCOPE = ("mutable", "flags", "rng_counters", "reservations")


class _Absent:
    def __repr__(self) -> str:
        return "absent"


_ABSENT = _Absent()


@functools.cache
def _states() -> Any:
    """The registry of state dicts, loaded on demand because few programs need it."""
    with loading:
        return importlib.import_module("toile.serialization.states")


def fingerprint(module: Functional) -> tuple[Item, ...]:
    """The fingerprint of a module."""
    return tuple(_items(module, (), {}))


def _items(obj: Any, path: Path, seen: dict[int, int]) -> Iterator[Item]:
    if obj.__class__ in _ATOMS:
        yield path, obj
    elif isinstance(obj, Functional):
        yield from _module_items(obj, path, seen)
    elif hasattr(obj, "__fn_or_cls__"):
        yield from _items(obj.__fn_or_cls__, path, seen)
    elif isinstance(obj, DenyList):
        yield path, DenyList
        yield from _items(obj.deny, (*path, "deny"), seen)
    elif obj.__class__ in _states().registered and not isinstance(obj, Mapping | list | tuple):
        yield path, type(obj)  # compared by its state dict, not by its hash
        yield from _items(_states().to_state_dict(obj), path, seen)
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        yield path, type(obj)
        for f in dataclasses.fields(obj):
            if hasattr(obj, f.name):
                yield from _items(getattr(obj, f.name), (*path, f.name), seen)
    else:
        yield from _plain_items(obj, path, seen)


def _plain_items(obj: Any, path: Path, seen: dict[int, int]) -> Iterator[Item]:
    """The items of Python's built-in containers, and of values without parts."""
    if isinstance(obj, Mapping):
        yield path, len(obj)
        for key, value in obj.items():
            yield (*path, "key"), key  # the order of keys may matter to a module
            yield from _items(value, (*path, _key_name(key)), seen)
    elif isinstance(obj, set | frozenset):
        yield path, frozenset(obj)
    elif isinstance(obj, Iterable) and not isinstance(obj, type) and not hasattr(obj, "dtype"):
        items = list(obj)
        yield path, (type(obj), len(items))
        for i, value in enumerate(items):
            yield from _items(value, (*path, str(i)), seen)
    else:
        yield path, _hashable(obj, path)


def _key_name(key: Any) -> str:
    # Counters of children are under (token, name).
    return str(key[1]) if isinstance(key, tuple) and len(key) == 2 else str(key)


def _module_items(module: Any, path: Path, seen: dict[int, int]) -> Iterator[Item]:
    yield path, type(module)
    if module._id in seen:  # its number shows which modules are shared
        yield path, seen[module._id]
        return
    seen[module._id] = len(seen)
    for f in dataclasses.fields(module):
        if f.name in ("parent", "name"):
            continue
        # Not through getattr, which would run `setup` for attributes that are set there.
        value = module.__dict__.get(f.name, getattr(type(module), f.name, _ABSENT))
        if value is not _ABSENT:
            yield from _items(value, (*path, f.name), seen)
    for name in _STATE:
        yield from _items(getattr(module._state, name), (*path, "_state", name), seen)
    if module.scope is not None:
        for name in _SCOPE:
            yield from _items(getattr(module.scope, name), (*path, "scope", name), seen)


def _hashable(x: Any, path: Path) -> Any:
    try:
        hash(x)
    except Exception as e:
        raise ValueError(
            f"Value at '{'/'.join(path)}' is not hashable: {e}. Needed fields that can be part of "
            f"a cache key under nn.jit, got {describe(x)}: use a tuple, a function or a number, "
            f"or pass arrays as arguments{here()}"
        ) from e
    return x


def changes(old: tuple[Item, ...], new: tuple[Item, ...]) -> list[str]:
    """A description of each field that differs between two fingerprints."""
    label = new[0][1].__name__
    before, after = _by_path(old), _by_path(new)
    found = []
    for path in dict.fromkeys([*before, *after]):
        a, b = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if a != b or type(a) is not type(b):
            where = ".".join(path) if path else "class"
            found.append(f"{label}.{where}: {_shown(a)} -> {_shown(b)}")
    return found or [f"{label}: its fields are used in another order"]


def _by_path(items: tuple[Item, ...]) -> dict[Path, Any]:
    """The values by path; several values of one path are combined in a tuple."""
    found: dict[Path, Any] = {}
    for path, value in items:
        if path and path[-1] == "key":
            continue  # the path of its value says the same
        found[path] = (found[path], value) if path in found else value
    return found


def _shown(x: Any) -> str:
    return x.__name__ if isinstance(x, type) else repr(x)
