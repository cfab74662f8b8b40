"""`jax._src.checkify`: the names of `jax.experimental.checkify`."""

from typing import TypeVar

from toile.experimental import checkify as _public
from toile.experimental.checkify import JaxException

Out = TypeVar("Out")

globals().update({name: getattr(_public, name) for name in _public.__all__})

__all__ = [*_public.__all__, "JaxException", "Out"]  # noqa: PLE0604
