"""Converts functions to programs that run without toile, and reads models of other libraries.

The public functions are `to_numpy`, `to_onnx`, `to_c` and `from_onnx` in `toile.export`.
"""
