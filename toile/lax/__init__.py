"""The public face of the operations, after jax.lax: strict in dtypes and shapes.

Functions take arrays, NumPy arrays and Python numbers. `toile.numpy` promotes and broadcasts; here
operands agree in dtype, and in shape up to scalars and axes of size 1. Each module below holds one
family and lists its public names in `__all__`.
"""

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.lax._names import *  # noqa: F403
from toile.lax.collectives import all_gather as all_gather
from toile.lax.collectives import all_to_all as all_to_all
from toile.lax.collectives import axis_index as axis_index
from toile.lax.collectives import axis_size as axis_size
from toile.lax.collectives import pbroadcast as pbroadcast
from toile.lax.collectives import pcast as pcast
from toile.lax.collectives import pmax as pmax
from toile.lax.collectives import pmean as pmean
from toile.lax.collectives import pmin as pmin
from toile.lax.collectives import ppermute as ppermute
from toile.lax.collectives import pshuffle as pshuffle
from toile.lax.collectives import psum as psum
from toile.lax.collectives import psum_scatter as psum_scatter
from toile.lax.collectives import pswapaxes as pswapaxes
from toile.lax.collectives import pvary as pvary
from toile.lax.conditionals import cond as cond
from toile.lax.conditionals import platform_dependent as platform_dependent
from toile.lax.conditionals import switch as switch
from toile.lax.contractions import *  # noqa: F403
from toile.lax.conversion import *  # noqa: F403
from toile.lax.conversion import _convert_element_type as _convert_element_type
from toile.lax.convolution import *  # noqa: F403
from toile.lax.drawing import *  # noqa: F403
from toile.lax.elementwise import *  # noqa: F403
from toile.lax.fft import *  # noqa: F403
from toile.lax.implicit import custom_linear_solve as custom_linear_solve
from toile.lax.implicit import custom_root as custom_root
from toile.lax.indexing import *  # noqa: F403
from toile.lax.loops import associative_scan as associative_scan
from toile.lax.loops import fori_loop as fori_loop
from toile.lax.loops import map as map
from toile.lax.loops import scan as scan
from toile.lax.loops import while_loop as while_loop
from toile.lax.miscellany import *  # noqa: F403
from toile.lax.reductions import *  # noqa: F403
from toile.lax.shapes import *  # noqa: F403
from toile.lax.sorting import *  # noqa: F403
from toile.lax.windows import *  # noqa: F403

if _typing.TYPE_CHECKING:
    from toile.lax import linalg as linalg

__getattr__, __dir__ = _attach(__name__, {}, "linalg")
__all__ = [name for name in __dir__() if name[0] != "_"]
