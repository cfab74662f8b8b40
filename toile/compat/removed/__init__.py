"""Names that JAX and Flax have removed, for programs that were written before.

`offer(year)` adds the names that existed in that year to the modules that stand for JAX's and
Flax's. Nothing imports this package unless a program asks for such names (`toile run --since`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from importlib import import_module
from types import ModuleType
from typing import Any

from toile.compat.removed.arrays import hash_of_number
from toile.compat.removed.table import ABSENT, FIRST, REMOVED
from toile.engine.arrays import DeviceArray
from toile.engine.config import config
from toile.engine.source import here
from toile.engine.trace import Array
from toile.interop.lookup import resolve

__all__ = ["names_since", "offer"]

Homes = dict[str, tuple[str, str]]
# The last years in which Flax's `init` returned a FrozenDict, in which elements of arrays had
# hashes, and in which arrays had a method `split`.
_FROZEN_UNTIL, _HASHED_UNTIL, _SPLIT_UNTIL = 2022, 2022, 2023


def names_since(year: int) -> dict[str, Homes]:
    """For each module of JAX and Flax: names that it had in that year, and where they are here.

    A place is a module and a name in it; an empty name means the module itself."""
    found: dict[str, Homes] = {}
    for module, last, home, names in REMOVED:
        for entry in names.split() if last >= year else ():
            inner, _, outer = entry.rpartition("=") if "=" in entry else (entry, "", entry)
            place = home if home.partition(".")[0] == "toile" else f"{__name__}.{home}"
            found.setdefault(module, {})[outer] = place, inner
    return found


def absent_since(year: int) -> dict[str, dict[str, str]]:
    """For each module: names that it had and toile has not, with what to use instead."""
    found: dict[str, dict[str, str]] = {}
    for module, last, names, advice in ABSENT:
        for name in names.split() if last >= year else ():
            found.setdefault(module, {})[name] = advice
    return found


def check_year(year: Any) -> None:
    """Raise an error unless `year` is a year in which JAX existed."""
    latest = date.today().year
    if isinstance(year, bool) or not isinstance(year, int) or not FIRST <= year <= latest:
        raise ValueError(
            f"since: needed a year from {FIRST} to {latest}, got {year!r} (give the year in which "
            f"the program was written){here()}"
        )


def offer(year: int) -> None:
    """Add the names that existed in a year to the modules that take the place of jax and flax."""
    check_year(year)
    absent = absent_since(year)
    names = names_since(year)
    for module in sorted({*names, *absent}, key=lambda name: name.count(".")):
        _extend(resolve(module), names.get(module, {}), absent.get(module, {}))
    if year <= _FROZEN_UNTIL:
        config.update("flax_return_frozendict", True)
    if year <= _HASHED_UNTIL:
        type.__setattr__(DeviceArray, "__hash__", hash_of_number)
    if year <= _SPLIT_UNTIL:
        for name, method in import_module(f"{__name__}.old_arguments").METHODS.items():
            type.__setattr__(Array, name, method)


def _extend(module: ModuleType, names: Homes, absent: dict[str, str]) -> None:
    """Let a module find more names; those that it has in another form are replaced."""
    before: Callable[[str], Any] | None = module.__dict__.get("__getattr__")
    shown = module.__name__

    def get(name: str) -> Any:
        if name in names:
            home, inner = names[name]
            value = import_module(home)
            value = getattr(value, inner) if inner else value
            setattr(module, name, value)
            return value
        if name in absent:
            raise AttributeError(f"module {shown!r} has no attribute {name!r} in toile "
                                 f"({absent[name]})", name=name, obj=module)
        if before is None:
            raise AttributeError(f"module {shown!r} has no attribute {name!r}", name=name,
                                 obj=module)
        return before(name)

    for name in names:
        module.__dict__.pop(name, None)
    module.__dict__["__getattr__"] = get
