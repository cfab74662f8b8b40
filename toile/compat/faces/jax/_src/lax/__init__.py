"""`jax._src.lax`: its modules are `toile.lax`, which has the public names of all of them."""

from typing import Any

from toile import lax as _lax
from toile.interop.lookup import fallback_to

STANDS_FOR = "toile.lax"

__all__ = [
    "ann", "control_flow", "convolution", "fft", "lax", "linalg", "other", "parallel", "slicing",
    "special", "windowed_reductions",
]

_of_toile = fallback_to(__name__, STANDS_FOR)


def __getattr__(name: str) -> Any:
    if name in __all__ and name != "linalg":
        return _lax
    return _of_toile(name)
