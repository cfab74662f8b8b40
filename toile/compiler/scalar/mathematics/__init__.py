"""Mathematical functions as code over the scalar builder, one file per family.

`Builder` is the complete builder `k`: it passes narrow floats to the float32 version of a function
(their registers are float32) and complex numbers to `complexes` and the files named `complex_...`.
Most functions do not branch or call others at run time, so that LLVM vectorizes loops over them and
the lanes of a GPU do not diverge; those that iterate until they converge are called by kernels
(`mathematics.apart`).
This package may import only compiler.scalar.
"""

from toile.compiler.scalar.mathematics.complete import Builder as Builder
