"""The parts of SciPy that work on traced arrays, with the names of `jax.scipy`.

Subpackages load when first used: `import toile` stays light. None of them imports the real SciPy,
save for window functions by name in `signal`, at the call that needs them.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
