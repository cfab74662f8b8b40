"""Call your own C functions and CUDA kernels inside `jit`, `grad` and `vmap`.

`c_function` takes the prototype of a C function, and `cuda_kernel` takes the source of a CUDA
kernel. `ffi_call` and `register_ffi_target` have the interface of `jax.ffi`. See docs/ffi.md.
"""

from toile.engine.lazy import attach as _attach

__getattr__, __dir__, __all__ = _attach(__name__, __file__)
