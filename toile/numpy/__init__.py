"""NumPy's interface on toile arrays: `import toile.numpy as jnp`.

Names, signatures, defaults, dtypes and results are those of `jax.numpy`. Each module below holds
one family and lists its public names in `__all__`; families that models rarely use are loaded when
one of their names is first used.

Differences from NumPy: arrays cannot be changed, and there is no `out`. Most functions take arrays
and numbers, not lists. int32 and float32 promote to float32, and a Python number takes the dtype of
the array beside it if that has the same kind. 64-bit dtypes need x64 to be enabled. Division by
zero, overflow and the like give infinities and NaN without a warning.
"""
# ruff: noqa: F403 -- every module says what is public in its __all__

import typing as _typing

from toile.engine.lazy import attach as _attach
from toile.numpy.comparisons import *
from toile.numpy.contractions import *
from toile.numpy.creation import *
from toile.numpy.cumulative import *
from toile.numpy.diagonals import *
from toile.numpy.dtype_names import *
from toile.numpy.index_update import *
from toile.numpy.joins import *
from toile.numpy.manipulation import *
from toile.numpy.pads import *
from toile.numpy.reductions import *
from toile.numpy.selection import *
from toile.numpy.sorted_order import *
from toile.numpy.summation import *
from toile.numpy.ufunc_api import *
from toile.numpy.ufuncs import *
from toile.numpy.ufuncs_bits import *
from toile.numpy.ufuncs_numeric import *

if _typing.TYPE_CHECKING:
    from toile.numpy import fft as fft
    from toile.numpy import linalg as linalg
    from toile.numpy.calculus import *
    from toile.numpy.data_statistics import *
    from toile.numpy.files import *
    from toile.numpy.functional import *
    from toile.numpy.grids import *
    from toile.numpy.polynomial import *
    from toile.numpy.quantiles import *
    from toile.numpy.reductions_nan import *
    from toile.numpy.sets import *
    from toile.numpy.windows import *

_FROM = {
    "calculus": "diff ediff1d gradient packbits trapezoid unpackbits unwrap",
    "files": "from_dlpack frombuffer fromfile fromiter fromstring load save savez",
    "functional": "apply_along_axis apply_over_axes piecewise vectorize",
    "grids": (
        "c_ fromfunction geomspace index_exp indices logspace meshgrid mgrid ogrid r_ s_ vander"
    ),
    "polynomial": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "reductions_nan": "nanargmax nanargmin nanmax nanmean nanmin nanprod nanstd nansum nanvar",
    "sets": (
        "intersect1d isin setdiff1d setxor1d union1d unique unique_all unique_counts "
        "unique_inverse unique_values"
    ),
    "data_statistics": (
        "bincount convolve corrcoef correlate cov histogram histogram2d histogram_bin_edges "
        "histogramdd interp"
    ),
    "windows": "bartlett blackman hamming hanning kaiser",
}
_MODULES = "fft linalg"
__getattr__, __dir__ = _attach(__name__, _FROM, _MODULES)

# `from toile.numpy import *`: what `from jax.numpy import *` gives too, not the families.
__all__ = [
    name for name in __dir__()
    if name[0] != "_" and getattr(globals().get(name), "__package__", None) != __name__
]
