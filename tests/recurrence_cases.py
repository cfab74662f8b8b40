"""Linear recurrences for tests: the definition as a loop, and operands of all kinds."""

import itertools

import ml_dtypes
import numpy as np

WAYS = list(itertools.product((False, True), repeat=2))  # reverse, shifted
LENGTHS = (1, 2, 3, 31, 33, 600, 5000)
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64, np.complex128,
          np.int32, np.uint8]  # fmt: skip


def wide(dtype):
    """A dtype in which numbers can be compared, and computed more accurately."""
    return {"i": np.int64, "u": np.int64, "c": np.complex128}.get(np.dtype(dtype).kind, np.float64)


def looped(a, b, axis, reverse, shifted):
    """The definition, rounded at the end."""
    a, h = (np.moveaxis(x, axis, 0).astype(wide(x.dtype)) for x in (a, b))
    step = -1 if reverse else 1
    with np.errstate(all="ignore"):
        for t in range(len(h))[::step][1:]:
            h[t] += a[t - step if shifted else t] * h[t - step]
        return np.moveaxis(h, 0, axis).astype(b.dtype)


def operands(shape, dtype, axis=0, reverse=False, shifted=False, seed=0):
    """Coefficients and terms; the coefficient that is not used is NaN."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    if dtype.kind in "iu":
        return [rng.integers(0, 5, shape).astype(dtype) for _ in range(2)]
    a, b = rng.uniform(-1, 1, shape), rng.normal(size=shape)
    if dtype.kind == "c":
        a, b = a * np.exp(1j * b), b + 1j * rng.normal(size=shape)
    a = a.astype(dtype)
    np.moveaxis(a, axis, 0)[-1 if reverse != shifted else 0] = np.nan
    return [a, b.astype(dtype)]
