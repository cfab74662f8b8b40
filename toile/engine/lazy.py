"""Packages whose submodules are imported on first use.

`__getattr__, __dir__ = attach(__name__, {"home": "names of it"}, "submodules")` is all that such a
package needs; a name is stored in the package at first use, so the lookup happens once. Type
checkers read ordinary imports, which the package has under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from toile.engine.locks import loading


def names_of(table: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """For each name in a table: the module it comes from and its name there.

    "map_params=tree_map_params" exports `map_params` as `tree_map_params`."""
    found = {}
    for home, text in table.items():
        for entry in text.split():
            inner, _, outer = entry.partition("=")
            found[outer or inner] = home, inner
    return found


def _missing(package: str, name: str) -> AttributeError:
    return AttributeError(f"module {package!r} has no attribute {name!r}")


def attach(
    package: str,
    table: Mapping[str, str],
    modules: str = "",
    missing: Callable[[str, str], AttributeError] = _missing,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package.

    `table` has the names that the package takes from its submodules, or from another package given
    in full ("toile.core.meta"); `modules` are submodules that are attributes."""
    homes, submodules = names_of(table), frozenset(modules.split())

    def __getattr__(name: str) -> Any:
        """Import what is used for the first time."""
        if name in homes:
            home, inner = homes[name]
            whole = home if home.startswith("toile.") else f"{package}.{home}"
            with loading:
                value = getattr(importlib.import_module(whole), inner)
            setattr(sys.modules[package], name, value)
            return value
        if name in submodules:
            with loading:
                return importlib.import_module(f"{package}.{name}")
        raise missing(package, name)

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *submodules})

    return __getattr__, __dir__
