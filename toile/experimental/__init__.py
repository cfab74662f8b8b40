"""The parts of `jax.experimental` that toile provides.

Accessing any other part raises an AttributeError, which names an alternative if there is one.
"""

from toile import _absent
from toile.engine.config import Override
from toile.engine.lazy import attach as _attach
from toile.engine.scoped_options import enable_x64

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _absent.missing_attribute)


def disable_x64() -> Override:
    """Replace 64-bit dtypes with 32-bit dtypes, as `enable_x64(False)` does.

    Returns:
        A context manager, which can also decorate a function.
    """
    return enable_x64(False)
