"""LLVM: text of kernels, machine code that is loaded, vectors and types of numbers."""
