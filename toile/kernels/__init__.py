"""Kernels by family: `shared` code, then `cpu` (LLVM text) and `gpu` (CUDA text or library calls).
"""
