"""Sort, top-k and arg-extrema: native code against the eager rules."""

import ml_dtypes
import numpy as np
import pytest

from tests.compiler.fake_plan import lowered
from toile.kernels.sort.cpu import lower, lower_extremum, lower_top_k
from toile.primitives.sorts import Argmax, Argmin, Sort, TopK

REAL = [
    np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64,
    np.float16, ml_dtypes.bfloat16, np.float32, np.float64,
]  # fmt: skip
SHAPES = [(1,), (7,), (3, 17), (2, 40, 3), (2, 150), (1500,)]
SPECIAL = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0])


def data(shape, dtype, seed=0):
    """Numbers with ties, extremes and what is special about floats."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind == "c":
        part = f"f{dtype.itemsize // 2}"
        out = np.empty(shape, dtype)
        out.real, out.imag = data(shape, part, seed), data(shape, part, seed + 1)
        return out
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, wide % 5).astype(dtype)
    x = np.round(rng.normal(size=shape) * 30) / 4
    with np.errstate(all="ignore"):
        return np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), x).astype(dtype)


def same(a, b):
    """Equal bits, but for the bits of NaN."""
    assert a.dtype == b.dtype and a.shape == b.shape
    b = np.ascontiguousarray(b)
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind == "c":
        part = f"f{a.dtype.itemsize // 2}"
        a, b = a.view(part), b.view(part)
    a, b = a.astype(np.float64), b.astype(np.float64)
    known = ~np.isnan(a)
    return np.array_equal(a, b, equal_nan=True) and np.array_equal(
        np.signbit(a[known]), np.signbit(b[known])
    )


def check(lower, op, xs, threads=2):
    results = op.eager(np, *xs)
    results = results if op.multiple else [results]
    got = lowered(lower, op, xs, [(r.shape, r.dtype) for r in results], threads)
    assert got is not None
    assert all(same(a, b) for a, b in zip(got, results, strict=True)), (op, xs, got, results)


@pytest.mark.parametrize("dtype", [*REAL, np.complex64, np.complex128])
def test_sort(dtype):
    for shape in SHAPES:
        for axis in range(len(shape)):
            x = data(shape, dtype)
            for y in (x, x[::-1], np.broadcast_to(x[:1], shape)):
                check(lower, Sort(axis), [y])
            places = np.indices(shape, np.int32)[axis]
            check(lower, Sort(axis), [x, places])


@pytest.mark.parametrize("shape", [(1,), (19,), (4, 33), (3, 500), (40, 3)])
def test_sort_by_several_keys(shape):
    for axis in range(len(shape)):
        few, wide = data(shape, np.int8, 1) // 50, data(shape, np.int64, 2) % 4
        x, z = data(shape, np.float32, 3), data(shape, np.complex128, 4)
        check(lower, Sort(axis, 2), [few, x, z])
        check(lower, Sort(axis, 3), [few, wide, x, z])
        check(lower, Sort(axis, 1), [few, wide[::-1], x, z])
        check(lower, Sort(axis, 2), [few, z, x])


@pytest.mark.parametrize("dtype", REAL)
def test_top_k(dtype):
    for shape in SHAPES:
        for axis in range(len(shape)):
            x = data(shape, dtype)
            n = shape[axis]
            for k in sorted({1, min(2, n), min(9, n), max(1, n // 2), n}):
                check(lower_top_k, TopK(k, axis), [x])
            check(lower_top_k, TopK(1, axis), [x[::-1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8])
@pytest.mark.parametrize("k", [24, 25, 40, 249, 250, 999, 1000])
def test_many_of_a_long_row(k, dtype):
    """Elements that may be among the best are sorted several times, in the worst case often."""
    x = data((3, 1000), dtype)
    rows = np.sort(x.astype(np.float64), 1).astype(dtype)
    for given in (x, rows, rows[:, ::-1], np.zeros_like(x), x.T[:, ::2].T):
        check(lower_top_k, TopK(min(k, given.shape[1]), 1), [given])


@pytest.mark.parametrize("dtype", REAL)
def test_arg_extrema(dtype):
    for shape in [*SHAPES, (5, 16), (5, 48), (31, 33)]:
        for axis in range(len(shape)):
            x = data(shape, dtype)
            for op in (Argmax(axis, np.dtype(np.int32)), Argmin(axis, np.dtype(np.int64))):
                check(lower_extremum, op, [x])
                check(lower_extremum, op, [x[::-1]])
    check(lower_extremum, Argmax(0, np.dtype(np.uint8)), [data((40,), dtype)])


def test_first_of_equals_and_of_nans():
    for n in (1, 5, 16, 17, 64, 100):
        x = np.zeros(n, np.float32)
        x[n // 2 :] = -0.0
        check(lower_extremum, Argmax(0, np.dtype(np.int32)), [x])
        check(lower_extremum, Argmin(0, np.dtype(np.int32)), [x])
        x[n // 3 :: 3] = np.nan
        check(lower_extremum, Argmax(0, np.dtype(np.int32)), [x])
        check(lower_extremum, Argmin(0, np.dtype(np.int32)), [x])


def test_threads_do_not_show():
    x = data((20, 700), np.float32)
    for threads in (1, 2, 8):
        check(lower, Sort(1), [x], threads)
        check(lower, Sort(0), [x, np.indices(x.shape, np.int32)[0]], threads)
        for k in (7, 50):
            check(lower_top_k, TopK(k, 1), [x], threads)


def test_what_is_declined():
    x = data((4,), np.float32).astype(ml_dtypes.float8_e4m3fn)
    assert lowered(lower, Sort(0), [x], [((4,), x.dtype)]) is None
