"""`flax.core`: the containers and scopes of Flax, and nothing of JAX's `core`."""

from toile import core as _core
from toile.compat import jax_core as _jax_core
from toile.compat.faces.flax.core import scope as scope
from toile.engine.lazy import public_names as _public_names

STANDS_FOR = "toile.core"

__all__ = [name for name in _public_names(_core.__file__) if name not in _jax_core.__all__]
globals().update({name: getattr(_core, name) for name in __all__ if name != "scope"})
