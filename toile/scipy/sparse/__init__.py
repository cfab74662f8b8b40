"""Iterative solvers for linear systems whose matrix is given as a function (`linalg`)."""

from toile.scipy.sparse import linalg

__all__ = ["linalg"]
