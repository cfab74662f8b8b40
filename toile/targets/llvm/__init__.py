"""LLVM: text of kernels, loaded machine code, launches, element types and vectors."""
