"""The parts of SciPy that work on traced arrays, with the names of `jax.scipy`.

Subpackages load when first used: `import toile` stays light. None of them imports the real SciPy,
save for window functions by name in `signal`, at the call that needs them.
"""

import importlib

_SUBPACKAGES = (
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
)


def __getattr__(name):
    if name in _SUBPACKAGES:
        return importlib.import_module(f"toile.scipy.{name}")
    raise AttributeError(f"module 'toile.scipy' has no attribute {name!r}")


def __dir__():
    return [*globals(), *_SUBPACKAGES]
