"""Passes over Programs, one per file, in the order of `compiler.pipeline`."""
