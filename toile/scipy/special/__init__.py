"""Special functions, with the names, dtypes and derivatives of `jax.scipy.special`.

Compositions over `lax` (which has the gamma, error and Bessel families) plus rational
approximations from `_tables`. The real SciPy is never imported here.
"""
# ruff: noqa: F403 -- every module says what is public in its __all__

from toile.scipy.special._bessel import *
from toile.scipy.special._entropy import *
from toile.scipy.special._erf import *
from toile.scipy.special._expint import *
from toile.scipy.special._gamma import *
from toile.scipy.special._hyper import *

__all__ = [name for name in globals() if name[0] != "_"]
