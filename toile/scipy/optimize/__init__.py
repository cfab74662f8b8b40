"""Minimization of functions of a vector: `minimize`, by BFGS or limited-memory BFGS."""

from toile.scipy.optimize._minimize import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]
