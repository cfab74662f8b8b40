"""Functions as programs that run without toile, and models of other libraries.

The public functions are `to_numpy`, `to_onnx` and `from_onnx` in `toile.export`.
"""
