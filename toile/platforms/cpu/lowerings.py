"""Which operations have native code: the lowering of each class."""

from __future__ import annotations

from toile.kernels.families import COMMON, Places, finder
from toile.primitives import sorts as sorting
from toile.primitives import windows

_PLACES: Places = {
    **COMMON,
    windows.SelectAndScatterAdd: ("window", "lower"),
    sorting.Argmax: ("sort", "lower_argmax"),
    sorting.Argmin: ("sort", "lower_argmin"),
}

# The function that adds an equation's stages to a plan; None: NumPy computes it.
lowering_of = finder("cpu", _PLACES)
