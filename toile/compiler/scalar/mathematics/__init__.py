"""Mathematical functions as code over the scalar builder, one file per family.

`Builder` is the complete builder `k`: it passes narrow floats to the float32 version of a function
(their registers are float32) and complex numbers to `complexes` and the files named `complex_...`.
No function branches or calls another at run time, so that LLVM vectorizes loops over it and the
lanes of a GPU do not diverge.
May import compiler.scalar only.
"""

from toile.compiler.scalar.mathematics.complete import Builder as Builder
