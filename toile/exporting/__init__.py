"""Converts functions to programs that run without toile, and reads models of other libraries.

The public functions are `to_numpy`, `to_onnx` and `from_onnx` in `toile.export`.
"""
