"""Fourier transforms: `fft` and the kinds it knows, as in `jax.lax`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine import dtypes
from toile.engine.conversion import as_array
from toile.engine.source import here
from toile.primitives.elementwise import convert
from toile.primitives.fft import Fft, FftType

__all__ = ["FftType", "fft"]


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """The Fourier transform of kind `fft_type` over the last len(fft_lengths) axes.

    >>> import numpy, toile.lax as lax
    >>> lax.fft(numpy.float32([1, 0, 0]), "rfft", (3,))
    Array([1.+0.j, 1.+0.j], dtype=complex64)
    """
    kind = _kind(fft_type)
    x = as_array(x)
    if kind is FftType.RFFT:
        if dtypes.kind(x.dtype) == "c":
            raise ValueError("only real valued inputs supported for rfft, got "
                             f"{x.aval.str_short()} (use fft){here()}")
        x = convert(x, dtypes.to_inexact_dtype(x.dtype))
    else:
        x = convert(x, dtypes.to_complex_dtype(x.dtype))
    lengths = tuple(int(n) for n in fft_lengths)
    return Fft(kind, lengths)(x) if lengths else x


def _kind(fft_type: FftType | str) -> FftType:
    if isinstance(fft_type, FftType):
        return fft_type
    if not isinstance(fft_type, str):
        raise TypeError(f"Unknown FFT type value '{fft_type}': needed a FftType or its "
                        f"name{here()}")
    if fft_type.upper() in FftType.__members__ and fft_type in (fft_type.lower(), fft_type.upper()):
        return FftType[fft_type.upper()]
    raise ValueError(f"Unknown FFT type '{fft_type}': needed fft, ifft, rfft or irfft{here()}")
