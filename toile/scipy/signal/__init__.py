"""Signal processing, with the same names as in `jax.scipy.signal`.

The package contains functions for convolution (directly or by FFT), short-time Fourier transforms,
estimates of spectral density, and detrending.
"""

from toile.scipy.signal._convolution import (
    convolve,
    convolve2d,
    correlate,
    correlate2d,
    fftconvolve,
)
from toile.scipy.signal._spectral import csd, detrend, istft, stft, welch

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft",
    "stft", "welch",
]
