"""Benchmarks that compare toile with other libraries in one interleaved run.

The results are in the folder `results`."""
