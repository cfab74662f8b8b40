"""Iterative solvers for linear systems whose matrix may be given as a function (`linalg`)."""

from toile.scipy.sparse import linalg

__all__ = ["linalg"]
