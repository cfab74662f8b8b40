"""Random numbers from explicit keys: the same names, arguments and numbers as `jax.random`.

Use each key once; `split` it for more. Equal keys give equal numbers, on every device and inside
or outside jit.
"""
# ruff: noqa: F403 -- every module lists its public names in __all__

from toile.random.bits import *
from toile.random.keys import *
from toile.random.samplers_counts import *
from toile.random.samplers_gamma import *
from toile.random.samplers_inverse import *
from toile.random.samplers_normal import *

__all__ = [
    name for name, found in list(globals().items())
    if name[0] != "_" and getattr(found, "__package__", None) != __name__
]
