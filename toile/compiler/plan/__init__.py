"""From a Program to its plan: which kernels, what is recomputed, and where buffers lie."""
