"""Minimization of functions of a vector by BFGS or limited-memory BFGS (`minimize`)."""

from toile.scipy.optimize._minimize import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]
