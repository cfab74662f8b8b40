"""The parts of SciPy that work on traced arrays, with the names of `jax.scipy`.

Subpackages load when first used: `import toile` stays light. None of them imports the real SciPy,
save for window functions by name in `signal`, at the call that needs them.
"""

from toile.engine.lazy import attach as _attach

_MODULES = (
    "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats"
)
__getattr__, __dir__ = _attach(__name__, {}, _MODULES)
