"""Passes over Programs, one to a file, in the order of `compiler.pipeline`."""
