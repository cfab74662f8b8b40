"""Pooling functions, re-exported from `toile.core.nn.pooling`."""

from toile.core.nn import pooling as _pooling
from toile.core.nn.pooling import *  # noqa: F403

__all__ = _pooling.__all__
