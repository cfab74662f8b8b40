"""Functions that exported NumPy files contain."""
