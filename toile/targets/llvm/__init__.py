"""LLVM: text of kernels, loaded machine code, vectors and number types."""
