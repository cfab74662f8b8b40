"""CUDA: text of kernels, modules that are loaded, the driver and NVIDIA's libraries."""
