"""The outer axes of a map on the CPU are in the order in which it reads the fewest cache lines."""

from types import SimpleNamespace

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.compiler.ir.loop_nests import Place
from toile.kernels.nest import cpu_launches

AXES = {  # shape, permutation
    "far columns": ((8, 4096, 8), (2, 1, 0)),
    "channels first": ((4, 96, 96, 3), (0, 3, 1, 2)),
    "channels last": ((4, 3, 96, 96), (0, 2, 3, 1)),
    "heads": ((4, 64, 8, 32), (0, 2, 1, 3)),
    "all reversed": ((6, 10, 14, 12, 8), (4, 3, 2, 1, 0)),
    "in order": ((8, 64, 128), (0, 1, 2)),
}


@pytest.mark.parametrize("name", AXES)
def test_permuted_maps(name):
    """A map computes the same, and reads no more cache lines, in the order that is chosen."""
    shape, order = AXES[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    y = np.random.default_rng(1).normal(size=[shape[i] for i in order]).astype(np.float32)
    found = toile.jit(lambda x, y: jnp.transpose(x, order) * 2 + y)(x, y)
    np.testing.assert_array_equal(found, np.transpose(x, order) * np.float32(2) + y)


def test_lines_of_orders():
    """Reading every eighth element of far rows eight times costs more than reading them once."""
    def places(*strides):
        return [Place(None, 0, s, np.dtype(np.float32)) for s in strides]

    def lines(order, extents, loads, stores):
        return cpu_launches._lines(SimpleNamespace(
            extents=extents, loads=places(loads), stores=places(stores)), order)

    far = (8, 16384, 8), (1, 8, 131072), (131072, 8, 1)
    assert 4 * lines((1, 0, 2), *far) < lines((0, 1, 2), *far)
    dense = (8, 64, 128), (8192, 128, 1), (8192, 128, 1)
    assert lines((0, 1, 2), *dense) == min(lines(o, *dense) for o in ((0, 1, 2), (1, 0, 2)))
    assert lines((0, 1, 2), *dense) == 2 * 8 * 64 * 128 * 4 // 64
