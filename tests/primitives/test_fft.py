"""Fourier transforms: values and every rule against jax.lax.fft."""

import functools

import jax
import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import check
from toile.engine.conversion import as_array
from toile.engine.scoped_options import enable_x64
from toile.lax.fft import FftType, fft

SHAPES = {
    "fft": [(8,), (3, 7), (2, 3, 4), (1,)],
    "ifft": [(8,), (3, 7), (2, 3, 4), (1,)],
    "rfft": [(8,), (3, 7), (2, 3, 4), (1,), (3, 1)],
    "irfft": [(8,), (3, 7), (2, 3, 4), (2,), (3, 1)],
}


def signal(kind, shape, wide=False):
    rng = np.random.default_rng(0)
    if kind == "irfft":
        shape = (*shape[:-1], shape[-1] // 2 + 1)
    x = rng.normal(size=shape)
    if kind != "rfft":
        x = x + 1j * rng.normal(size=shape)
        return x.astype(np.complex128 if wide else np.complex64)
    return x.astype(np.float64 if wide else np.float32)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", SHAPES)
def test_rules(kind, axes):
    for shape in SHAPES[kind]:
        if len(shape) < axes:
            continue
        options = {"fft_type": kind, "fft_lengths": shape[-axes:]}
        check(functools.partial(fft, **options), lambda x, o=options: lax.fft(x, *o.values()),
              signal(kind, shape), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", SHAPES)
def test_double_precision(kind):
    with jax.enable_x64(True), enable_x64(True):
        x = signal(kind, (3, 6), wide=True)
        check(lambda x: fft(x, kind, (6,)), lambda x: lax.fft(x, kind, (6,)), x, rtol=1e-12,
              atol=1e-12)


def test_kinds_and_promotion():
    x = np.arange(4)
    assert fft(x, FftType.FFT, (4,)).dtype == np.complex64
    assert fft(x, "RFFT", (4,)).dtype == np.complex64
    assert fft(x, "fft", ()).dtype == np.complex64
    np.testing.assert_allclose(fft(x, "fft", (4,)), np.fft.fft(x), rtol=1e-6)
    assert fft(np.zeros((0, 4), np.float32), "rfft", (4,)).shape == (0, 3)


@pytest.mark.parametrize("call, kind", [
    (lambda: fft(np.ones(4), "dct", (4,)), ValueError),
    (lambda: fft(np.ones(4), 3.5, (4,)), TypeError),
    (lambda: fft(np.ones(4) + 1j, "rfft", (4,)), ValueError),
    (lambda: fft(np.ones(4), "fft", (5,)), ValueError),
    (lambda: fft(np.ones(4), "fft", (4, 4)), ValueError),
    (lambda: fft(np.ones(4), "irfft", (4,)), ValueError),
])
def test_errors(call, kind):
    with pytest.raises(kind):
        call()


def test_error_text():
    with pytest.raises(ValueError, match=r"rfft: needed last axes of sizes \(5,\).*float32\[4\]"):
        fft(as_array(np.ones(4, np.float32)), "rfft", (5,))
