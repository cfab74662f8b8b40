"""From a Program to its plan: which kernels run, what is recomputed, and where buffers lie."""
