"""Iterative linear solvers that only multiply by the matrix."""

from toile.scipy.sparse import linalg

__all__ = ["linalg"]
