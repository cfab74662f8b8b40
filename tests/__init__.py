import os

# NumPy's BLAS waits for its threads in a loop, which takes the cores of the other workers of a run
# and of what they start: products and decompositions of a few hundred rows took seconds.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
