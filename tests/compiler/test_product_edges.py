"""The edges of toile's own matrix products: incomplete tiles, panels and vectors."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.kernels.contraction.cpu_panels import Panel, pack_kernel
from toile.kernels.contraction.cpu_tiles import Kernel, choose_tile
from toile.targets.llvm import native
from toile.targets.llvm.product_types import element, work_element

pytest.importorskip("llvmlite")
WIDTHS = (1, 3, 15, 16, 17, 33, 47, 48, 49, 63, 65)


def numbers(seed, *shape):
    """Small whole numbers, whose products are exact in all dtypes."""
    return np.random.RandomState(seed).randint(-3, 4, shape)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "bfloat16", "bool"])
@pytest.mark.parametrize("order", ["nn", "tn", "nt", "tt"])
def test_widths(dtype, order):
    """All widths next to multiples of a vector, in one Program; neighbors keep their values."""
    with toile.enable_x64():
        pairs = []
        for i, width in enumerate(WIDTHS):
            m, k = 2 + 3 * i % 14, 5 + 9 * i % 40
            a, b = numbers(i, m, k), numbers(100 + i, k, width)
            if dtype == "bool":
                a, b = a > 0, b > 1
            a, b = (a.T if order[0] == "t" else a), (b.T if order[1] == "t" else b)
            pairs.append((jnp.asarray(a.copy(), dtype), jnp.asarray(b.copy(), dtype)))

        def product(a, b):
            return (a.T if order[0] == "t" else a) @ (b.T if order[1] == "t" else b)

        found = toile.jit(lambda pairs: [product(a, b) for a, b in pairs])(pairs)
        for (a, b), got in zip(pairs, found, strict=True):
            exact = np.float64 if dtype == "bfloat16" else None
            want = product(np.asarray(a, exact), np.asarray(b, exact))
            assert got.dtype == dtype
            np.testing.assert_array_equal(np.asarray(got, exact), want)


@pytest.mark.parametrize("name", ["float32", "float64", "int32", "int8", "bool"])
@pytest.mark.parametrize("rows", [1, 4, 32])
@pytest.mark.parametrize("packs_a", [False, True])
def test_written_out(name, rows, packs_a):
    """LLVM is not asked to vectorize what it compiles with few passes."""
    e, work = element(name), work_element(name)
    tile = choose_tile(work, rows, packs_a)
    texts = [Kernel(tile, packs_a, e, e, e, work).text,
             pack_kernel(Panel(tile.columns, tile.lanes, e, work))]
    for text in texts:
        assert text.startswith(native.WRITTEN_OUT)
        assert 'vectorize.enable", i1 true' not in text
        assert len(text) < 300_000  # it takes 1 ms to compile about 1,000 bytes
