"""The heavy structural operations as plain functions on raw arrays.

Every function takes the array module `xp` (numpy or cupy) first and does not depend on tracing.
Results may be views of their operands: buffers are never written to once an operation has returned
them.
"""

from toile.primitives.arrays.contraction import contract
from toile.primitives.arrays.conv import conv_general, conv_output_shape
from toile.primitives.arrays.cumulative import cumulative, linear_recurrence
from toile.primitives.arrays.gather_arrays import (
    dynamic_slice,
    dynamic_update_slice,
    gather,
    scatter,
)
from toile.primitives.arrays.pad_arrays import pad
from toile.primitives.arrays.sort_arrays import argmax, argmin, sort, top_k
from toile.primitives.arrays.windows import (
    reduce_window,
    reduce_window_with,
    select_and_gather_add,
    select_and_scatter_add,
    window_output_shape,
)

__all__ = [
    "argmax",
    "argmin",
    "contract",
    "conv_general",
    "conv_output_shape",
    "cumulative",
    "dynamic_slice",
    "dynamic_update_slice",
    "gather",
    "linear_recurrence",
    "pad",
    "reduce_window",
    "reduce_window_with",
    "scatter",
    "select_and_gather_add",
    "select_and_scatter_add",
    "sort",
    "top_k",
    "window_output_shape",
]
