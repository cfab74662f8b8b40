"""GPUs: devices, arrays, and Programs as CUDA kernels. Most of it is loaded on first use."""
