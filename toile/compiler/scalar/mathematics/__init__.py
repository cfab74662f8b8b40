"""Mathematical functions as code over the scalar builder, one file per family.

`Builder` is the complete builder `k`: it sends a function of narrow floats to the float32 version
(registers hold that) and one of complex numbers to `complexes`. Every function is free of branches
and of calls, so that LLVM vectorizes loops over it and a GPU's lanes stay together.
May import compiler.scalar only.
"""

from toile.compiler.scalar.mathematics.complete import Builder as Builder
