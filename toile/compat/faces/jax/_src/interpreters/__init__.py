"""`jax._src.interpreters`: the modules of `jax.interpreters`, and the errors of `ad`."""

import sys

from toile.compat.faces.jax._src.interpreters import ad
from toile.compat.faces.jax.interpreters import batching, mlir, partial_eval, pxla, xla

__all__ = ["ad", "batching", "mlir", "partial_eval", "pxla", "xla"]

for _module in (batching, mlir, partial_eval, pxla, xla):  # each exists once, under two names
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
