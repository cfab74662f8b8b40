"""Packages whose names are imported on first use.

A package has one list of its public names: the imports in its `__init__.pyi`. Type checkers and
editors read this list, and so does `attach`; the package's `__init__.py` needs only the line
`__getattr__, __dir__, __all__ = attach(__name__, __file__)`. A name is stored in the package when
it is first used, so the lookup happens once; a submodule is an attribute whether it is listed or
not. Names that a package does not have are looked up in `toile.compat`.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from opcode import opmap
from types import FrameType
from typing import Any

from toile.engine.foreign_names import instead
from toile.engine.locks import loading
from toile.engine.suggestions import did_you_mean
from toile.engine.tracebacks import expect_error

_IMPORT = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)

Homes = dict[str, tuple[str, str]]


class MissingName(AttributeError):
    """A module does not have the requested name; the message suggests the most similar name."""

    def __init__(self, package: str, name: str, more: str = ""):
        super().__init__(name=name, obj=sys.modules.get(package))
        self.package, self.more = package, more

    def __str__(self) -> str:  # looked up only when the error is shown: `hasattr` stays cheap
        text = f"module {self.package!r} has no attribute {self.name!r}"
        if self.more:
            return f"{text} ({self.more})"
        name = str(self.name)
        found = instead(self.package, name) or _elsewhere(self.package, name)
        return text + (found or did_you_mean(name, dir(self.obj)))


_PACKAGES = ("numpy", "numpy.linalg", "random", "nn", "lax", "tree", "tree_util", "optim", "linen",
             "debug", "")


def _elsewhere(package: str, name: str) -> str:
    """" (use toile.numpy.zeros)" for a name that another package of toile has, or nothing."""
    top = package.partition(".")[0]
    for other in _PACKAGES if name[0] != "_" else ():
        home = f"{top}.{other}".rstrip(".")
        module = importlib.import_module(home)
        if home != package and name in getattr(module, "__all__", ()):
            return f" (use {home}.{name})"
    return ""


def names_in(stub: str) -> Homes:
    """For each name that a stub imports: the module it comes from and its name there."""
    found: Homes = {}
    for home, many, few in _IMPORT.findall(stub):
        for entry in (many or few).split(","):
            inner, _, outer = entry.partition(" as ")
            if inner.strip():
                found[(outer or inner).strip()] = home, inner.strip()
    return found


def public_names(file: str) -> Homes:
    """The names of a package, from the stub beside its `__init__.py`."""
    with open(f"{file.rpartition('.')[0]}.pyi", encoding="utf-8") as stub:
        return names_in(stub.read())


def names_of(table: Mapping[str, str]) -> Homes:
    """The same for a table {"home": "its names"}; "inner=outer" exports `inner` as `outer`."""
    found = {}
    for home, text in table.items():
        for entry in text.split():
            inner, _, outer = entry.partition("=")
            found[outer or inner] = home, inner
    return found


def attach(
    package: str, file: str, missing: Callable[[str, str], AttributeError] = MissingName
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package with an `__init__.pyi`."""
    homes = public_names(file)
    get, listed = attach_table(package, homes, os.path.dirname(file), missing)
    return get, listed, [name for name in homes if name[0] != "_"]


def attach_table(
    package: str, homes: Homes, folder: str = "",
    missing: Callable[[str, str], AttributeError] = MissingName,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that takes names from other modules.

    Files of `folder` are submodules."""

    def __getattr__(name: str) -> Any:
        """Import a name or a submodule when it is used for the first time."""
        home, inner = homes.get(name, ("", ""))
        if not home and folder and name.isidentifier() and _is_module(os.path.join(folder, name)):
            home, inner = package, name
        with loading:
            if home == package:
                value = importlib.import_module(f"{package}.{inner}")
            elif home:
                value = getattr(importlib.import_module(home), inner)
            else:
                value = compat_name(package, name)
        if value is None and not home:
            if not name.startswith("__"):
                expect_error()
                refuse_import(package, name, missing, sys._getframe(1))
            raise missing(package, name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return __getattr__, __dir__


_IMPORT_FROM = opmap["IMPORT_FROM"]


def refuse_import(
    package: str, name: str, missing: Callable[[str, str], AttributeError], frame: FrameType
) -> None:
    """Raise ImportError with advice if a frame runs `from package import name`."""
    if frame.f_code.co_code[frame.f_lasti] != _IMPORT_FROM or f"{package}.{name}" in sys.modules:
        return
    advice = str(missing(package, name)).partition(f" has no attribute {name!r}")[2]
    expect_error()
    raise ImportError(f"cannot import name {name!r} from {package!r}{advice}", name=name)


# `toile.compat` is the highest layer. It is imported by name, only for names that nothing else has.


def compat_name(module: str, name: str) -> Any:
    """The value that `toile.compat` has for a name of a module; None if there is none."""
    if name.startswith("__"):
        return None
    with loading:
        return importlib.import_module("toile.compat").find(module, name)


def compat_spec(module: str) -> ModuleSpec | None:
    """The spec of a module that `toile.compat` has under another name, or None."""
    with loading:
        return importlib.import_module("toile.compat").Finder.find_spec(module)


def _is_module(path: str) -> bool:
    return os.path.isfile(f"{path}.py") or os.path.isfile(os.path.join(path, "__init__.py"))
