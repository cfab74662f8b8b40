"""On a real GPU: every row of the operation table gives the CPU's results, at all its dtypes.

Operations are compiled, and run one by one; reductions, cumulative operations and orders at sizes
that take every kind of kernel.
"""

import numpy as np
import pytest

import toile
from tests.cases_control import ROWS
from tests.closeness import ULPS, nearly_equal
from tests.compiler.test_rows import (
    CUMULATIVE,
    ORDERS,
    REDUCTIONS,
    ULPS_OF,
    drawn,
    listed,
    same_bits,
    subsets,
    table,
    ulps_of,
    wide,
)
from toile.platforms.gpu.devices import gpu_devices
from toile.primitives import linalg_eigen, reductions

pytestmark = [pytest.mark.gpu,
              pytest.mark.skipif(not gpu_devices(), reason="needs a GPU and CuPy")]

SHAPES = ((1,), (33,), (1025,), (300_001,), (3, 5, 7), (300, 257), (2, 70, 601), (40_000, 3),
          (5, 30_000))  # fmt: skip
EXACT = "highest"  # no TF32


def both(run, args):
    """The results on the CPU, and compiled on the GPU, twice."""
    cpu, gpu = toile.devices("cpu")[0], toile.devices("gpu")[0]
    with toile.default_matmul_precision(EXACT):
        with toile.default_device(cpu):
            want = listed(run(*toile.device_put(args, cpu)))
        with toile.default_device(gpu):
            f = toile.jit(lambda *xs: run(*xs))
            given = toile.device_put(args, gpu)
            return want, listed(f(*given)), listed(f(*given)), given


def agree(run, args, ulps=ULPS, what="", eager=False, check=None):
    """`check` says what must hold of results if libraries may choose between several."""
    want, first, second, given = both(run, args)
    for a, b, w in zip(first, second, want, strict=True):
        if check is None:
            nearly_equal(np.asarray(a), np.asarray(w), what, 4 * ulps)
        assert same_bits(a, b), f"{what}: two runs differ"
    if check is not None:
        check([np.asarray(a) for a in first], *args)
        return
    if eager:
        gpu = toile.devices("gpu")[0]
        with toile.default_matmul_precision(EXACT), toile.default_device(gpu):
            for a, w in zip(listed(run(*given)), want, strict=True):
                nearly_equal(np.asarray(a), np.asarray(w), f"{what} eager", 4 * ulps)


def by_dtype():
    return [pytest.param(row, d, id=f"{row}-{d}") for row in ROWS for d in row.dtypes]


@pytest.mark.parametrize(("row", "dtype"), by_dtype())
def test_row(row, dtype):
    with wide(dtype, row.label):
        check = row.check if row.op in (linalg_eigen.Eigh, linalg_eigen.Svd) else None
        agree(row.run, row.arguments(dtype), ULPS_OF.get(row.op.__name__, ULPS), eager=True,
              check=check)


@pytest.mark.parametrize(("op", "dtype"), table(REDUCTIONS))
def test_reduction_shapes(op, dtype):
    (low, high), _ = REDUCTIONS[op]
    with wide(dtype):
        for shape in SHAPES:
            x = drawn(shape, low, high, dtype)
            for a in subsets(x.ndim):
                over = int(np.prod([shape[i] for i in a]))
                ulps = ULPS + over if op is reductions.ReduceProd else ulps_of(over)
                agree(op(a), [x], ulps, f"{shape} over {a}")


@pytest.mark.parametrize(("op", "dtype"), table(CUMULATIVE))
def test_cumulative_shapes(op, dtype):
    (low, high), _ = CUMULATIVE[op]
    with wide(dtype):
        for shape in SHAPES:
            x = drawn(shape, low, high, dtype)
            for axis in range(x.ndim):
                agree(op(axis, axis == 0), [x], ulps_of(shape[axis]), f"{shape} along {axis}")


@pytest.mark.parametrize(("name", "dtype"), table(ORDERS))
def test_order_shapes(name, dtype):
    make, _ = ORDERS[name]
    with wide(dtype):
        for shape in SHAPES:
            x = drawn(shape, -9, 9, dtype)
            for axis in range(x.ndim):
                agree(make(axis), [x], what=f"{shape} along {axis}")
