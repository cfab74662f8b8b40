"""SciPy's extension modules without their packages: they load in a fraction of the time."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from functools import cache
from typing import Any


@cache
def linalg_extension(name: str) -> Any:
    """`scipy.linalg.<name>`, without importing `scipy.linalg` if that is not loaded yet."""
    full = f"scipy.linalg.{name}"
    if full not in sys.modules and "scipy.linalg" not in sys.modules:
        found = _alone(full, name)
        if found is not None:
            return found
    return importlib.import_module(full)


def _alone(full: str, name: str) -> Any:
    """The extension module from its file; None if there is none, or if it needs its package."""
    package = importlib.util.find_spec("scipy")
    if package is None or package.origin is None:
        return None
    folder = os.path.join(os.path.dirname(package.origin), "linalg")
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = os.path.join(folder, name + suffix)
        if os.path.exists(path):
            try:
                loader = importlib.machinery.ExtensionFileLoader(full, path)
                spec = importlib.util.spec_from_file_location(full, path, loader=loader)
                assert spec is not None
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
                return module
            except (ImportError, AttributeError):
                return None
            finally:  # the package loads its own when it is imported later
                sys.modules.pop(full, None)
    return None
