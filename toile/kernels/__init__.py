"""Kernels by family: what the devices share, then `cpu` (LLVM text) and `gpu` (CUDA text, or
calls of NVIDIA's libraries).
"""
