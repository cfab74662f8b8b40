"""Decide which packages are redirected: those that import jax or flax.

The packages that toile is tested with are listed here. Another package is redirected if its
distribution requires jax or flax, or if the user has loaded it by name with `load`. All other
packages (NumPy, absl, toolz ...) do not use jax, and redirected code shares them with the rest of
the process.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import sys

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
_requested: set[str] = set()


def register(root: str) -> None:
    """Redirect the package `root` in all later imports."""
    if root == "toile" or root in sys.stdlib_module_names:
        raise ValueError(f"interop: needed a package that imports jax or flax, got {root!r}")
    _requested.add(root)


def is_redirected(root: str) -> bool:
    """Whether redirected code imports a separate copy of the package `root`."""
    return root in KNOWN or root in _requested or _needs_jax(root)


@functools.cache
def _needs_jax(root: str) -> bool:
    """Whether the distribution of this name requires jax or flax, apart from optional extras."""
    if root in sys.stdlib_module_names or root in ("toile", "jaxlib"):
        return False
    try:
        requirements = importlib.metadata.requires(root) or ()
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return any(_REQUIRES.match(line) and "extra ==" not in line for line in requirements)


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
