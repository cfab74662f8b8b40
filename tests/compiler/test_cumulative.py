"""Running sums, products, extrema and log-sum-exps: native code against the eager rules."""

import ml_dtypes
import numpy as np
import pytest

from tests.compiler.fake_plan import lowered
from toile.kernels.cumulative.cpu import lower
from toile.primitives.cumulative import Cumlogsumexp, Cummax, Cummin, Cumprod, Cumsum

REAL = [np.int8, np.uint16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32,
        np.float64]  # fmt: skip
SHAPES = [(1,), (9,), (3, 17), (200, 3), (2, 150, 70), (300,), (1, 1), (4, 1, 65)]


def data(shape, dtype, seed=0):
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = 1 + rng.normal(size=shape) * 0.1
    return (x + 0.1j * rng.normal(size=shape) if dtype.kind == "c" else x).astype(dtype)


def check(op, x, threads=2):
    with np.errstate(all="ignore"):
        expected = op.eager(np, x)
    got = lowered(lower, op, [x], [(x.shape, x.dtype)], threads)
    assert got is not None
    if x.dtype.kind in "iu":
        assert np.array_equal(got[0], expected)
        return
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    rtol = 3e-6 if x.dtype.itemsize >= 4 else 1e-2
    np.testing.assert_allclose(got[0].astype(wide), expected.astype(wide), rtol, 1e-6, str(op))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("kind", [Cumsum, Cumprod, Cummax, Cummin])
def test_cumulative(kind, dtype):
    for shape in SHAPES:
        for axis in range(len(shape)):
            for reverse in (False, True):
                x = data(shape, dtype)
                check(kind(axis, reverse), x)
                check(kind(axis, reverse), x[::-1])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_log_sum_exp(dtype):
    for shape in SHAPES:
        for axis in range(len(shape)):
            x = 40 * data(shape, dtype)
            check(Cumlogsumexp(axis), x)
            if x.size > 4:
                x.flat[0] = x.flat[1] = -np.inf
                check(Cumlogsumexp(axis, True), x)
                x.flat[2] = np.inf
                x.flat[3] = np.nan
                check(Cumlogsumexp(axis), x)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_numbers(dtype):
    for kind in (Cumsum, Cumprod):
        for shape in SHAPES:
            for axis in range(len(shape)):
                check(kind(axis), data(shape, dtype))
                check(kind(axis, True), data(shape, dtype)[::-1])
    x = data((5,), dtype)
    assert lowered(lower, Cumlogsumexp(0), [x], [(x.shape, x.dtype)]) is None


def test_nan_and_infinity_pass_on():
    x = np.array([1.0, np.inf, -np.inf, 2.0, np.nan, 3.0], np.float32)
    for kind in (Cumsum, Cumprod, Cummax, Cummin):
        for y in (x, x[:4], np.stack([x, x[::-1]], 1)):
            check(kind(0), y)
            check(kind(0, True), y)


@pytest.mark.parametrize("reverse", [False, True])
def test_long_rows_in_parts(reverse):
    for x in (data((2, 150001), np.float32) - 1, data((150001,), np.int32),
              np.exp(1j * data((150001,), np.float32))):
        for kind in (Cumsum, Cumprod) if x.dtype.kind == "c" else (Cumsum, Cummax, Cumprod):
            check(kind(x.ndim - 1, reverse), x, 1)
            check(kind(x.ndim - 1, reverse), x, 3)
