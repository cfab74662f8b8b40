"""Import redirection: a second copy of a package, in which `jax` and `flax` refer to toile.

A finder serves the installed source of a package under `toile.interop.<package>`. The modules of
the package are executed with special `__builtins__`, whose `__import__` replaces `jax...`,
`flax...` and other redirected packages. Functions inherit the builtins of the module that defines
them, so imports inside functions are replaced as well. Nothing is rewritten: files, line numbers
and the cached bytecode are those of the installed package.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from toile.engine.lazy import compat_name
from toile.interop import packages, process
from toile.interop.lookup import FACES, resolve

HERE = __name__.rpartition(".")[0]  # toile.interop
REPLACED = ("jax", "flax", "absl", "importlib", "unittest")  # packages that have a face


def load(name: str) -> ModuleType:
    """Import an installed package that was written for JAX or Flax, and let it run on toile.

    The source of the package is imported as a separate module, `toile.interop.<name>`, and
    everything that it imports from `jax` and `flax` comes from toile. The original package stays
    unchanged and can be imported as well. After `install`, `load` imports the original package,
    which then runs on toile.

    Args:
        name: package or module, such as "optax" or "optax.contrib".

    Returns:
        The module; for `"jax"` or `"flax"`, the toile module that replaces that package.

    Raises:
        ModuleNotFoundError: the package is not installed.

    >>> import toile
    >>> optax = toile.interop.load("optax")
    >>> optax.apply_updates({"w": toile.numpy.ones(2)}, {"w": toile.numpy.full(2, -0.5)})
    {'w': Array([0.5, 0.5], dtype=float32)}
    """
    root = name.partition(".")[0]
    if root in REPLACED:
        return resolve(name)
    if _installed(root) is None:
        raise ModuleNotFoundError(packages.missing(root), name=root)
    if process.installed():
        return importlib.import_module(name)
    packages.register(root)
    return importlib.import_module(f"{HERE}.{name}")


def attribute(name: str) -> ModuleType:
    """Return `toile.interop.<name>`: a toile module or a redirected package."""
    if _is_own(name) or compat_name(HERE, name) is not None:
        return importlib.import_module(f"{HERE}.{name}")
    if not packages.is_redirected(name):
        raise ModuleNotFoundError(packages.unknown(name), name=name)
    return load(name)


def import_(
    name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import a module for redirected code, which calls this function as `__import__`."""
    root = name.partition(".")[0]
    if level == 0 and root in REPLACED:
        module = resolve(name)
        for part in fromlist or ():  # `from jax import numpy` may mean a module not imported yet
            if not hasattr(module, part) and part != "*":
                with contextlib.suppress(ModuleNotFoundError):
                    resolve(f"{name}.{part}")
        return module if fromlist else resolve(root)
    if level == 0 and packages.is_redirected(root):
        module = importlib.import_module(f"{HERE}.{name}")
        if not fromlist:  # `import a.b` binds a
            return sys.modules[f"{HERE}.{root}"]
        name = module.__name__
    return builtins.__import__(name, globals, locals, fromlist or (), level)


def private_name(name: str) -> str:
    """Translate a dotted name in redirected code, such as `"jax.lax.sin"`, to its real name."""
    root = name.partition(".")[0]
    if root in ("jax", "flax"):
        return f"{FACES}.{name}"
    return f"{HERE}.{name}" if packages.is_redirected(root) else name


def spec_of(name: str, package: str | None = None) -> ModuleSpec | None:
    """Find a module's spec for redirected code, like `importlib.util.find_spec`."""
    root = name.partition(".")[0]
    if root in ("jax", "flax"):
        try:
            return resolve(name).__spec__
        except ModuleNotFoundError:
            return None
    if root and packages.is_redirected(root):
        return importlib.util.find_spec(f"{HERE}.{name}") if _installed(root) else None
    return importlib.util.find_spec(name, package)


BUILTINS = {**vars(builtins), "__import__": import_}


class Loader(SourceFileLoader):
    """A loader that executes a source file with the builtins for redirected code."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = BUILTINS
        super().exec_module(module)


class Finder:
    """A finder that looks up `toile.interop.<package>...` in the installed `<package>`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(HERE + "."):
            return None
        root, _, rest = name[len(HERE) + 1 :].partition(".")
        if not packages.is_redirected(root) or _is_own(root):
            return None
        found = PathFinder.find_spec(name, path) if rest else _installed(root)
        if found is None and not rest:
            raise ModuleNotFoundError(packages.missing(root), name=name)
        if found is None:
            return None
        if found.origin is None:  # a directory without __init__.py, under its new name
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = list(found.submodule_search_locations or ())
            return spec
        if isinstance(found.loader, ExtensionFileLoader):
            return found
        if not isinstance(found.loader, SourceFileLoader):
            raise ImportError(
                f"interop: needed the Python source of {root}, got {found.origin!r} "
                "(install the package unpacked, with its .py files)",
                name=name,
            )
        return importlib.util.spec_from_file_location(
            name,
            found.origin,
            loader=Loader(name, found.origin),
            submodule_search_locations=found.submodule_search_locations,
        )


def _installed(root: str) -> ModuleSpec | None:
    """Find the package `root` on the import path or in an editable installation."""
    found = PathFinder.find_spec(root)
    if found is None:
        with contextlib.suppress(ValueError, ImportError):  # no spec, or a refused import
            found = importlib.util.find_spec(root)
    return found


def _is_own(name: str) -> bool:
    """Whether toile.interop itself has a module of this name."""
    return PathFinder.find_spec(f"{HERE}.{name}", sys.modules[HERE].__path__) is not None


def install() -> None:
    """Put the finder first on `sys.meta_path`, unless it is there already.

    It must be first because Python's finder would find the real files of redirected packages."""
    if Finder not in sys.meta_path:
        sys.meta_path.insert(0, Finder)
