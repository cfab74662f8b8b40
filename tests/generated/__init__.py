"""Generated programs: nests of control flow, transformations and array operations.

A program is data (`data.py`), drawn from a seed and an index (`draw.py`, with the leaves and the
nests that it chooses from) and printed as Python source that runs on toile or on JAX. `check.py`
compares the ways to run it, `shrink.py` makes a failing one small, and `python -m tests.generated`
runs many in several processes.
"""
