"""`importlib` for redirected code: `import_module("jax.numpy")` finds what `import` would."""

import importlib as _importlib
from types import ModuleType

from toile.compat.faces.importlib import util
from toile.interop import redirect
from toile.interop.lookup import fallback_to

__all__ = ["import_module", "util"]

STANDS_FOR = "importlib"


def import_module(name: str, package: str | None = None) -> ModuleType:
    """The module that an import statement in redirected code would import."""
    if name.startswith("."):
        return _importlib.import_module(name, package)
    return redirect.import_(name, fromlist=("*",))


__getattr__ = fallback_to(__name__, STANDS_FOR)
