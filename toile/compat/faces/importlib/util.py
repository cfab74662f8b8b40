"""`importlib.util` for redirected code, which finds `jax` and `flax` as the faces."""

import importlib.util as _util
from importlib.machinery import ModuleSpec
from typing import Any

from toile.interop import redirect


def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
    """The spec of the module that an import statement in redirected code would import, or None."""
    return redirect.spec_of(name, package)


def __getattr__(name: str) -> Any:
    return getattr(_util, name)
