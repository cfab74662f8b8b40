"""CUDA: text of kernels, loaded modules, the driver and NVIDIA's libraries."""
