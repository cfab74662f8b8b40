"""Benchmarks against peers, interleaved in one run; results are kept beside them."""
