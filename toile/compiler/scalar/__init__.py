"""Scalar code that LLVM and CUDA share, and mathematics written with it."""
