"""The parts of SciPy that work under toile's transformations, named as in `jax.scipy`.

SciPy itself is not needed, except to look up window functions by name in `toile.scipy.signal`.
"""

# Subpackages load when they are first used, so that `import toile` stays fast.

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
