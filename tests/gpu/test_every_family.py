"""One case of each family of CUDA kernels, every day: the long tables (tests/gpu/test_kernels.py)
run by the week. Numbers are distinct, so that an element in the wrong place shows."""

import numpy as np
import pytest

from tests.gpu.test_kernels import check
from toile.kernels.contraction import gpu_tiles as tiled_products
from toile.kernels.copy import gpu as copies
from toile.kernels.cumulative.gpu import lower as lower_cumulative
from toile.kernels.cumulative.gpu import lower_recurrence
from toile.kernels.gather import gpu as gathering
from toile.kernels.scatter import gpu as scattering
from toile.kernels.sort import gpu as sorting
from toile.kernels.sort import gpu_extrema as extrema
from toile.kernels.window import gpu as pooling
from toile.primitives import shapes, windows
from toile.primitives.addresses import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from toile.primitives.contractions import dot_operation
from toile.primitives.cumulative import Cummax, Cumsum
from toile.primitives.gathers import Gather, Scatter
from toile.primitives.recurrences import LinearRecurrence
from toile.primitives.sorts import Argmax, Sort, TopK

INDEX = np.dtype(np.int32)
ROWS = GatherDimensionNumbers((1,), (0,), (0,))
FILL, CLIP = GatherScatterMode.FILL_OR_DROP, GatherScatterMode.CLIP
PLACES = np.array([[0], [4], [5], [-1], [6], [2], [2], [4]], np.int32)  # of 5 rows


def distinct(*shape, dtype=np.float32):
    """Numbers in no order, none of them twice."""
    n = int(np.prod(shape))
    return (np.random.default_rng(n).permutation(n) - n // 3).reshape(shape).astype(dtype)


OVERLAPPING = (1, 3), (1, 1), ((0, 0), (1, 1))  # window, strides, padding
ONES = (1, 1)
CASES = {
    "running sums of rows": (lower_cumulative, Cumsum(1), [distinct(3, 70, dtype=np.int32)]),
    "running sums, reversed": (
        lower_cumulative, Cumsum(1, True), [distinct(2, 45, dtype=np.int32)]),
    "running sums of columns": (lower_cumulative, Cumsum(0), [distinct(300, 2, dtype=np.int32)]),
    "running maxima of a long row": (lower_cumulative, Cummax(0), [distinct(5000)]),
    "recurrence of columns": (lower_recurrence, LinearRecurrence(0, True, True),
                              [distinct(300, 2, dtype=np.int32), distinct(300, 2, dtype=np.int32)]),
    "recurrence of a long row": (lower_recurrence, LinearRecurrence(0),
                                 [distinct(5000, dtype=np.int32), distinct(5000, dtype=np.int32)]),
    "gather that fills": (
        gathering.lower, Gather(ROWS, (1, 7), mode=FILL), [distinct(5, 7), PLACES]),
    "gather that clips": (
        gathering.lower, Gather(ROWS, (1, 7), mode=CLIP), [distinct(5, 7), PLACES]),
    "scatter that drops": (
        scattering.lower, Scatter("add", ScatterDimensionNumbers(*ROWS), mode=FILL),
        [distinct(5, 7), PLACES, distinct(8, 7)]),
    "scatter that clips": (
        scattering.lower, Scatter("max", ScatterDimensionNumbers(*ROWS), mode=CLIP),
        [distinct(5, 7), PLACES, distinct(8, 7)]),
    "sort": (sorting.lower, Sort(0), [distinct(90) // 4, np.arange(90, dtype=np.int32)]),
    "sort of a row by a block": (
        sorting.lower, Sort(1), [distinct(2, 1025) // 4, distinct(2, 1025)]),
    "sort of a long row": (
        sorting.lower, Sort(0), [distinct(4097, dtype=np.int16) // 4, distinct(4097)]),
    "top_k": (sorting.lower_top_k, TopK(4, 1), [distinct(3, 30)]),
    "top_k of warps": (sorting.lower_top_k, TopK(8, 1), [distinct(9, 200) // 3]),
    "top_k of blocks": (sorting.lower_top_k, TopK(3, 0), [distinct(300, 2) // 3]),
    "argmax": (extrema.lower_extremum, Argmax(1, INDEX), [distinct(4, 33) // 3]),
    "sums of windows": (
        pooling.lower, windows.ReduceWindowSum(*OVERLAPPING, ONES, ONES), [distinct(3, 12)]),
    "gradient of overlapping windows": (
        pooling.lower, windows.SelectAndScatterAdd("ge", *OVERLAPPING),
        [distinct(3, 12), distinct(3, 12) // 5]),
    "tangent of windows": (
        pooling.lower, windows.SelectAndGatherAdd("le", *OVERLAPPING, ONES, ONES),
        [distinct(3, 12), distinct(3, 12) // 5]),
    "pad": (copies.moves.lower_pad, shapes.Pad(((1, 2, 0), (0, -1, 1))),
            [distinct(3, 5), np.array(-7, np.float32)]),
    "concatenate": (copies.moves.lower_concatenate, shapes.Concatenate(1),
                    [distinct(3, 5), distinct(3, 2), distinct(3, 1)]),
    "rev": (copies.moves.lower_rev, shapes.Rev((0, 2)), [distinct(3, 5, 4)]),
    "product": (tiled_products.lower_small_dot, dot_operation("ab", "bc", "ac"),
                [distinct(9, 17, dtype=np.int32), distinct(17, 5, dtype=np.int32)]),
}


@pytest.mark.parametrize("name", CASES)
def test_family(name):
    lower, op, arrays = CASES[name]
    check(lower, op, arrays)
