"""toile: neural networks in the style of Flax, with its own autodiff engine and compiler.

Names that also exist in JAX or Flax have the same signatures, defaults and results as in those
libraries.
"""

from toile.engine.garbage import paused as _paused

with _paused():  # these import nearly everything
    from toile import _absent
    from toile.engine import checked, program_text  # noqa: F401 -- they fill slots of the engine
    from toile.engine.lazy import attach as _attach
    from toile.engine.trace import Array as _Array
    from toile.engine.trace import Tracer as _Tracer
    from toile.numpy.array_methods import install as _install

__getattr__, __dir__, __all__ = _attach(__name__, __file__, _absent.missing_attribute)
_install(_Array, _Tracer)
_absent.install()
