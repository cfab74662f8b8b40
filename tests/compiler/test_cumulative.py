"""Running values and linear recurrences: native code against the eager rules."""

import ml_dtypes
import numpy as np
import pytest

import toile
from tests.compiler.fake_plan import lowered
from tests.recurrence_cases import DTYPES, LENGTHS, WAYS, operands
from toile.kernels.cumulative.cpu import lower, lower_recurrence
from toile.primitives.cumulative import Cumlogsumexp, Cummax, Cummin, Cumprod, Cumsum
from toile.primitives.recurrences import LinearRecurrence

REAL = [np.int8, np.uint16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32,
        np.float64]  # fmt: skip
SHAPES = [(1,), (9,), (3, 17), (200, 3), (2, 150, 70), (300,), (1, 1), (4, 1, 65)]


def data(shape, dtype, seed=0):
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = 1 + rng.normal(size=shape) * 0.1
    return (x + 0.1j * rng.normal(size=shape) if dtype.kind == "c" else x).astype(dtype)


def check(op, x, threads=2, a=None):
    ins = [x] if a is None else [a, x]
    with np.errstate(all="ignore"):
        expected = op.eager(np, *ins)
    form = lower if a is None else lower_recurrence
    got = lowered(form, op, ins, [(x.shape, x.dtype)], threads)
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


@pytest.mark.parametrize(("reverse", "shifted"), WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_recurrences(dtype, reverse, shifted):
    for n in LENGTHS:
        for shape, axis in [((n,), 0), ((7, n), 1), ((n, 3), 0), ((2, n, 70), 1)]:
            a, b = operands(shape, dtype, axis, reverse, shifted)
            op = LinearRecurrence(axis, reverse, shifted)
            check(op, b, a=a)
            if n == 33:
                check(op, b[..., ::-1], a=a[..., ::-1].copy())


@pytest.mark.parametrize(("reverse", "shifted"), WAYS)
def test_compiled_recurrences(reverse, shifted):
    """Also the tiny ones, which are computed in registers."""
    for shape, axis, dtype in [((5,), 0, np.float32), ((2, 4), 1, np.complex64),
                               ((4, 2), 0, ml_dtypes.bfloat16), ((40, 30), 0, np.float32)]:
        a, b = operands(shape, dtype, axis, reverse, shifted)
        op = LinearRecurrence(axis, reverse, shifted)
        got = np.asarray(toile.jit(lambda a, b, op=op: 2 * op(a, b))(a, b))
        want = 2 * op.eager(np, a, b)
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), 1e-5, 1e-5)
