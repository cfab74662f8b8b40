"""GPUs: their devices and arrays, and Programs as CUDA kernels. Loads little before one is used."""
