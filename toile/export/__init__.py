"""Export jitted functions: store them as data, and run them without the code that defined them.

`export(jit(f))(*args)` traces a function. `Exported.serialize` converts the result to bytes, and
`deserialize` loads it. Axes may have symbolic sizes, so that an exported function accepts batches
of any size. `to_numpy`, `to_onnx` and `to_c` convert a function to a program that runs without
toile, and `from_onnx` reads a model of another library.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
