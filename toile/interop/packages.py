"""Decide which packages are redirected: those that import jax or flax.

The packages that toile is tested with are listed here. Another package is redirected if the user
has loaded it by name with `load`, or if a distribution that contains it

  - requires jax or flax, or
  - offers an extra that requires them, and a file of the package imports jax or flax, or
  - has a file that imports them, and no extension modules.

All other packages (NumPy, absl, toolz ...) do not use jax, or, as SciPy does, only to recognize its
arrays. Redirected code shares them with the rest of the process.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

# The name that is imported -> the name that is installed.
KNOWN = {
    "chex": "chex",
    "dm_pix": "dm-pix",
    "equinox": "equinox",
    "haiku": "dm-haiku",
    "jaxtyping": "jaxtyping",
    "jmp": "jmp",
    "jraph": "jraph",
    "optax": "optax",
}
_REQUIRES = re.compile(r"(jax|jaxlib|flax)\b(?![-.])")
_IMPORTS = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(?:jax|flax)\b", re.MULTILINE)
_MOST_FILES = 5_000  # that are searched for imports
_requested: set[str] = set()


def register(root: str) -> None:
    """Redirect the package `root` in all later imports."""
    if root == "toile" or root in sys.stdlib_module_names:
        raise ValueError(f"interop: needed a package that imports jax or flax, got {root!r}")
    _requested.add(root)


def is_redirected(root: str) -> bool:
    """Whether redirected code imports a separate copy of the package `root`."""
    return root in KNOWN or root in _requested or _uses_jax(root)


@functools.cache
def _uses_jax(root: str) -> bool:
    """Whether the package `root` is made for jax or flax (see above)."""
    if root in sys.stdlib_module_names or root in ("toile", "jaxlib"):
        return False
    mentions = _mentions(root)
    if any("extra ==" not in line for line in mentions):
        return True
    files = list(_files(root))
    if not mentions and any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files):
        return False
    return any(map(_imports_jax, files))


def _mentions(root: str) -> list[str]:
    """The requirements of jax and flax in the distributions that contain a package."""
    return _dependents().get(root, [])


@functools.cache
def _dependents() -> dict[str, list[str]]:
    """For each package whose distribution mentions jax or flax: these requirements."""
    found: dict[str, list[str]] = {}
    for distribution in importlib.metadata.distributions():
        mentions = [line for line in distribution.requires or () if _REQUIRES.match(line)]
        if mentions:
            for name in _top_level(distribution):
                found.setdefault(name, []).extend(mentions)
    return found


def _top_level(distribution: importlib.metadata.Distribution) -> set[str]:
    """The packages and modules that a distribution contains."""
    listed = distribution.read_text("top_level.txt")
    if listed:
        return set(listed.split())
    first = {file.parts[0] for file in distribution.files or ()}
    names = {name.removesuffix(".py") for name in first} | {distribution.name.replace("-", "_")}
    return {name for name in names if name.isidentifier()}


def _files(root: str) -> Iterator[str]:
    """The files of a package, none if it has very many."""
    spec = PathFinder.find_spec(root)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        yield spec.origin or ""
        return
    found = [os.path.join(folder, file) for place in spec.submodule_search_locations
             for folder, _, files in os.walk(place) for file in files]
    if len(found) <= _MOST_FILES:
        yield from found


def _imports_jax(file: str) -> bool:
    if not file.endswith(".py"):
        return False
    try:
        with open(file, "rb") as source:
            return _IMPORTS.search(source.read()) is not None
    except OSError:
        return False


def missing(root: str) -> str:
    """Return the error message for a package that is not installed."""
    installed_as = KNOWN.get(root, root)
    hint = f"pip install {installed_as}"
    if root == "optax":
        hint += ", or pip install --no-deps optax absl-py to install it without jax"
    return f"interop: needed the package {root}, which is not installed ({hint})"


def unknown(root: str) -> str:
    """Return the error message for a package that does not seem to use JAX."""
    return (
        f"toile.interop has no module {root!r}, and no installed package of that name requires jax "
        f"(interop.load({root!r}) tries to load one anyway)"
    )
