"""How near compiled results must be to eager ones: a few units in the last place."""

import numpy as np

ULPS = 8  # of each element, and of the largest one: sums are taken in another order
NARROW = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def spacing(dtype) -> float:
    """The relative distance of neighbouring numbers."""
    dtype = np.dtype(dtype)
    return NARROW.get(dtype.name) or float(np.finfo(dtype).eps)


def is_inexact(dtype) -> bool:
    return np.dtype(dtype).kind in "fc" or np.dtype(dtype).name in NARROW


def nearly_equal(got, want, what="", ulps=ULPS):
    """Equal dtypes, shapes, integers, NaNs and infinities; other floats within `ulps`."""
    g, w = np.asarray(got), np.asarray(want)
    assert (g.shape, g.dtype) == (w.shape, w.dtype), (what, g.shape, g.dtype, w.shape, w.dtype)
    if not is_inexact(w.dtype):
        assert g.tobytes() == w.tobytes(), f"{what}: {g} is not {w}"
        return
    eps = spacing(w.dtype)
    wide = np.complex128 if w.dtype.kind == "c" else np.float64
    g, w = g.astype(wide), w.astype(wide)
    parts = [(g.real, w.real), (g.imag, w.imag)] if wide is np.complex128 else [(g, w)]
    finite = np.isfinite(w)
    scale = np.abs(w[finite]).max(initial=0.0)
    for a, b in parts:
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), what)
        special = ~np.isfinite(b)
        np.testing.assert_array_equal(a[special & ~np.isnan(b)], b[special & ~np.isnan(b)], what)
        error = np.abs(a[~special] - b[~special])
        bound = ulps * eps * (np.abs(b[~special]) + scale)
        assert (error <= bound + np.finfo(np.float32).tiny).all(), (
            f"{what}: {a[~special][error > bound]} is not {b[~special][error > bound]}"
        )
