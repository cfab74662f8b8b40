"""Which operations have code: the lowering of each class, and what loop nests can hold."""

from __future__ import annotations

from toile.backends.cpu import ir
from toile.backends.cpu.scalars import Scalars, register
from toile.compiler import fusible
from toile.compiler.lowering_table import COMMON, Places, finder
from toile.primitives import sorting, windows

_CONSTANTS = {"i1": "true", "float": "0.0", "double": "0.0"}
can_fuse = fusible.rule(lambda: Scalars(ir.Function("probe", ())),
                        lambda dtype: _CONSTANTS.get(register(dtype), "1"))

_PLACES: Places = {
    **COMMON,
    windows.SelectAndScatterAdd: ("pooling", "lower"),
    sorting.Argmax: ("sorting", "lower_argmax"),
    sorting.Argmin: ("sorting", "lower_argmin"),
}

# The function that adds an equation's stages to a plan; None: NumPy computes it.
lowering_of = finder("toile.backends.cpu", _PLACES)
