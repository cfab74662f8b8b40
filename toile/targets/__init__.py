"""The targets of code generation: LLVM for the CPU, CUDA for GPUs; text, code, libraries."""
