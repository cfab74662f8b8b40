"""Process-wide redirection: `import jax` and `import flax` import toile, in every package.

`load` copies one package and leaves the rest of the process alone; `install` needs no copies, but
the real jax and flax cannot be used in the same process.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from toile.engine import extra_warnings
from toile.engine.source import here
from toile.interop.lookup import FACES, resolve

COMPAT = "toile.compat."
ROOTS = ("jax", "jaxlib", "flax")


def install(since: int | None = None) -> None:
    """Make toile take the place of jax and flax in the whole process.

    From then on, `import jax` and `import flax` import toile's modules, in your program and in all
    packages that it imports, whether or not jax and flax are installed. Call `install` before
    anything imports jax or flax; `toile run` does this for a program that you do not want to
    change. A second call does nothing, except that its argument `since` can make more old names
    available.

    Unlike `load`, `install` creates no copies of packages: `import optax` imports the installed
    Optax, which then runs on toile.

    toile issues some warnings that JAX does not have, such as `OutOfBoundsWarning`. After
    `install`, filters that turn warnings into errors do not apply to them: they are printed
    instead.

    Args:
        since: the year in which the program was written, such as 2020. Names that JAX or Flax had
            in that year and has removed since are then available: `jax.ops.index_update`,
            `jax.experimental.stax`, `flax.nn` and others. None means that they are not available.

    Raises:
        ValueError: `since` is not a year in which JAX existed.
        RuntimeError: the real jax or flax has been imported already.

    >>> toile.interop.install()  # doctest: +SKIP
    >>> import jax  # doctest: +SKIP
    >>> type(jax.numpy.ones(3)) is type(toile.numpy.ones(3))  # doctest: +SKIP
    True
    """
    if not installed():
        _take_place()
    if since is not None:
        import_module("toile.compat.removed").offer(since)


def _take_place() -> None:
    loaded = [name for name in ROOTS if name in sys.modules]
    if loaded:
        file = getattr(sys.modules[loaded[0]], "__file__", None) or "an unknown file"
        raise RuntimeError(
            f"toile.interop.install: needed a process that has not imported {loaded[0]} yet, but "
            f"{loaded[0]} was imported from {file} (call install() before all other imports, or "
            f"start the program with `toile run`){here()}"
        )
    sys.meta_path.insert(0, _Finder)
    extra_warnings.mode.print_errors()


# Modules that `import jax` loads, so that packages look for them in `sys.modules`.
_LOADED = """
    core dtypes tree tree_util typing errors numpy numpy.linalg numpy.fft lax lax.linalg nn
    nn.initializers ops random scipy sharding stages api_util custom_batching custom_derivatives
    debug dlpack experimental image interpreters interpreters.ad interpreters.batching
    interpreters.mlir interpreters.partial_eval interpreters.pxla interpreters.xla lib profiler ref
""".split()


def installed() -> bool:
    """Return whether toile takes the place of jax and flax in this process.

    Returns:
        True after `install`.

    >>> toile.interop.installed()
    False
    """
    return _Finder in sys.meta_path


class _Finder:
    """Finds the modules of jax and flax, and the versions that packages ask for."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in ROOTS:
            return None
        if name == "flax.nnx" or name.startswith("flax.nnx."):
            return _of_flax(name)
        return ModuleSpec(name, _Replacement(resolve(name)), is_package=True)

    @staticmethod
    def invalidate_caches() -> None:
        """Nothing is cached."""

    @staticmethod
    def find_distributions(context: Any) -> Iterator[importlib.metadata.Distribution]:
        if context.name in ROOTS:
            yield _Distribution(context.name)


def _of_flax(name: str) -> ModuleSpec | None:
    """The spec of a module of the installed Flax, which runs on toile."""
    flax = PathFinder.find_spec("flax")
    if flax is None or not flax.submodule_search_locations:
        return None
    parts = name.split(".")[1:]
    path = os.path.join(flax.submodule_search_locations[0], *parts)
    if os.path.isdir(path):
        return spec_from_file_location(name, os.path.join(path, "__init__.py"),
                                       submodule_search_locations=[path])
    return spec_from_file_location(name, f"{path}.py") if os.path.isfile(f"{path}.py") else None


class _Replacement(Loader):
    """Puts a module of toile into `sys.modules` in place of the empty one that Python made."""

    def __init__(self, module: ModuleType):
        self.module = module

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self.module
        if self.module.__name__.startswith(COMPAT) and not hasattr(self.module, "__path__"):
            self.module.__path__ = []  # it may be a package in JAX
        if module.__name__ == "jax":
            for name in _LOADED:
                import_module(f"jax.{name}")


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a package that toile replaces: its name and the version that toile has."""

    def __init__(self, name: str):
        self._name = name

    def read_text(self, filename: str) -> str | None:
        if filename not in ("METADATA", "PKG-INFO"):
            return None
        version = resolve(self._name).__version__
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {version}\n"

    def locate_file(self, path: Any) -> Any:
        return Path(str(sys.modules[f"{FACES}.{self._name}"].__file__)).parent / path

