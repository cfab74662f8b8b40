"""`jax._src.core`: the names of `jax.core` and `jax.extend.core`."""

from toile.compat.faces.jax import core as _core
from toile.compat.faces.jax.extend import core as _extended

globals().update({name: getattr(_core, name) for name in _core.__all__})
globals().update({name: getattr(_extended, name) for name in _extended.__all__})

__all__ = [*_core.__all__, *_extended.__all__]  # noqa: PLE0604
