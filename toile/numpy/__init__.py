"""NumPy's interface on toile arrays: `import toile.numpy as jnp`.

Names, signatures, defaults, dtypes and results are those of `jax.numpy`. Each module below holds
one family and lists its public names in `__all__`.
"""
# ruff: noqa: F403 -- every module says what is public in its __all__

from toile.numpy import fft as fft
from toile.numpy import linalg as linalg
from toile.numpy.calculus import *
from toile.numpy.comparisons import *
from toile.numpy.contractions import *
from toile.numpy.creation import *
from toile.numpy.cumulative import *
from toile.numpy.diagonals import *
from toile.numpy.dtype_names import *
from toile.numpy.files import *
from toile.numpy.functional import *
from toile.numpy.grids import *
from toile.numpy.index_update import *
from toile.numpy.joining import *
from toile.numpy.manipulation import *
from toile.numpy.padding import *
from toile.numpy.polynomial import *
from toile.numpy.quantiles import *
from toile.numpy.reductions import *
from toile.numpy.reductions_nan import *
from toile.numpy.selection import *
from toile.numpy.sets import *
from toile.numpy.sorting import *
from toile.numpy.statistics import *
from toile.numpy.summation import *
from toile.numpy.ufunc_api import *
from toile.numpy.ufuncs import *
from toile.numpy.ufuncs_bits import *
from toile.numpy.ufuncs_numeric import *
from toile.numpy.windows import *
