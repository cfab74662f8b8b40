"""What redirected code sees as `jax` and as `flax`: toile, under their names.

JAX and Flax use some names for different things (`core`, `config`, `errors`, `__version__`), which
is why there are two faces. A face holds what differs; everything else is toile's: `jax.numpy` is
`toile.numpy` itself, so that classes and functions are the same objects on both sides.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from types import ModuleType
from typing import Any

_resolved: dict[str, ModuleType] = {}


def resolve(name: str) -> ModuleType:
    """The module of toile that stands for `name`, a module of jax or flax."""
    module = _resolved.get(name)
    if module is None:
        module = _resolved[name] = _resolve(name)
    return module


def _resolve(name: str) -> ModuleType:
    parent, _, last = name.rpartition(".")
    if not parent:
        return importlib.import_module(f"{__name__}.{name}")
    above = resolve(parent)
    value = getattr(above, last, None)
    if isinstance(value, ModuleType):
        return value
    try:
        return importlib.import_module(f"{above.__name__}.{last}")
    except ModuleNotFoundError as error:
        why = "" if error.name == f"{above.__name__}.{last}" else f": {error}"
        raise ModuleNotFoundError(f"toile has no module in the place of {name}{why}", name=name) from (
            error
        )


def falls_back(face: str, target: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: submodules of the face, then what `target` has."""

    def get(name: str) -> Any:
        if importlib.util.find_spec(f"{face}.{name}") is not None:
            return importlib.import_module(f"{face}.{name}")
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(importlib.import_module(target), name)
        except AttributeError:
            shown = face.removeprefix(f"{__name__}.")
            raise AttributeError(f"module {shown!r} of toile has no attribute {name!r}") from None

    return get
