"""Find the toile module that replaces a module of jax or flax.

The replacement is a module of `toile.compat.faces` if toile differs from the original; otherwise,
it is the toile module with the same name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

FACES = "toile.compat.faces"


@functools.cache
def resolve(name: str) -> ModuleType:
    """Return the toile module that replaces `name`, a module of jax or flax."""
    parent, _, last = name.rpartition(".")
    if not parent:
        return import_module(f"{FACES}.{name}")
    above = resolve(parent)
    value = getattr(above, last, None)
    if isinstance(value, ModuleType):
        return value
    # `STANDS_FOR` is the package that a face replaces; other modules come from that package.
    package = getattr(above, "STANDS_FOR", above.__name__)
    try:
        return import_module(f"{package}.{last}")
    except ModuleNotFoundError as error:
        why = "" if error.name == f"{package}.{last}" else f": {error}"
        text = f"toile has no module in the place of {name}{why}"
        raise ModuleNotFoundError(text, name=name) from error


def fallback_to(face: str, target: str) -> Callable[[str], Any]:
    """Return a `__getattr__` that looks in the submodules of `face` and then in `target`."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {face!r} has no attribute {name!r}")
        if find_spec(f"{face}.{name}") is not None:
            return import_module(f"{face}.{name}")
        try:
            return getattr(import_module(target), name)
        except AttributeError:
            shown = face.removeprefix(f"{FACES}.")
            raise AttributeError(f"module {shown!r} of toile has no attribute {name!r}") from None

    return get
