"""Calls of C functions and CUDA kernels of the user."""
