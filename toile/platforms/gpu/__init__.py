"""GPUs: devices, arrays, and Programs as CUDA kernels. Most of it is loaded at the first use."""
