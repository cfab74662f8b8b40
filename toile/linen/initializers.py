"""Initializers of parameters, re-exported from `toile.core.nn.initializers`."""

from toile.core.nn import initializers as _initializers
from toile.core.nn.initializers import *  # noqa: F403

__all__ = _initializers.__all__
