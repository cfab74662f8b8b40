"""The public functions of the operations, after jax.lax: strict in dtypes and shapes.

Functions take arrays, NumPy arrays and Python numbers. `toile.numpy` promotes and broadcasts; here
operands agree in dtype, and in shape up to scalars and axes of size 1. Each module below holds one
family and lists its public names in `__all__`.
"""
# ruff: noqa: F403 -- every module says what is public in its __all__

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.lax._names import *
from toile.lax.collectives import *
from toile.lax.comparisons import *
from toile.lax.conditionals import *
from toile.lax.contractions import *
from toile.lax.conversion import *
from toile.lax.conversion import _convert_element_type as _convert_element_type
from toile.lax.convolution import *
from toile.lax.elementwise import *
from toile.lax.fft import *
from toile.lax.gathers import *
from toile.lax.implicit import *
from toile.lax.loops import *
from toile.lax.miscellany import *
from toile.lax.raw_bits import *
from toile.lax.reductions import *
from toile.lax.shapes import *
from toile.lax.sorts import *
from toile.lax.transcendental import *
from toile.lax.windows import *

if _typing.TYPE_CHECKING:
    from toile.lax import linalg as linalg

__getattr__, __dir__ = _attach(__name__, {}, "linalg")
__all__ = [name for name in __dir__() if name[0] != "_"]
