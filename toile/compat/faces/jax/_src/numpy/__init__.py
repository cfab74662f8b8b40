"""`jax._src.numpy`: modules that have the public names of `toile.numpy`."""

from typing import Any

from toile import numpy as _numpy
from toile.interop.lookup import fallback_to

STANDS_FOR = "toile.numpy"

__all__ = ["array_methods", "lax_numpy", "reductions", "ufuncs", "util"]

_of_toile = fallback_to(__name__, STANDS_FOR)


def __getattr__(name: str) -> Any:
    if name in __all__ and name != "util":
        return _numpy
    return _of_toile(name)
