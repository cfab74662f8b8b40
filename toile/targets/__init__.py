"""What code is written for: LLVM on the CPU, CUDA on GPUs; text, machine code and libraries."""
