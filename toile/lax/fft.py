"""Discrete Fourier transforms: `fft` and the types of transform that it computes."""

from __future__ import annotations

from collections.abc import Sequence

from toile.engine import dtypes
from toile.engine.annotations import Array, ArrayLike
from toile.engine.conversion import as_array
from toile.engine.source import here
from toile.primitives.elementwise import convert
from toile.primitives.fft import Fft, FftType


def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Compute a discrete Fourier transform over the last axes.

    The inverse transforms divide by the number of elements. For functions with the interface of
    `numpy.fft`, see `jnp.fft`.

    Args:
        x: array to transform. "rfft" requires real numbers; the other transforms convert real
            numbers to complex numbers.
        fft_type: "fft", "ifft", "rfft" or "irfft", or the `FftType` with one of these names. "rfft"
            transforms real numbers and returns only the nonnegative frequencies; "irfft" is its
            inverse.
        fft_lengths: lengths of the transformed axes, which are the last `len(fft_lengths)` axes.
            They must be the sizes of these axes in `x` or, for "irfft", in the result.

    Returns:
        A complex array, or a real array for "irfft". "rfft" changes the size of the last axis from
        `n` to `n // 2 + 1`, and "irfft" changes it back.

    >>> lax.fft(jnp.array([1.0, 0.0, 0.0]), "rfft", (3,))
    Array([1.+0.j, 1.+0.j], dtype=complex64)
    """
    kind = _kind(fft_type)
    a = as_array(x)
    if kind is FftType.RFFT:
        if dtypes.kind(a.dtype) == "c":
            raise ValueError("only real valued inputs supported for rfft, got "
                             f"{a.aval.str_short()} (use fft){here()}")
        a = convert(a, dtypes.to_inexact_dtype(a.dtype))
    else:
        a = convert(a, dtypes.to_complex_dtype(a.dtype))
    lengths = tuple(int(n) for n in fft_lengths)
    return Fft(kind, lengths)(a) if lengths else a


def _kind(fft_type: FftType | str) -> FftType:
    if isinstance(fft_type, FftType):
        return fft_type
    if not isinstance(fft_type, str):
        raise TypeError(f"Unknown FFT type value '{fft_type}': needed a FftType or its "
                        f"name{here()}")
    if fft_type.upper() in FftType.__members__ and fft_type in (fft_type.lower(), fft_type.upper()):
        return FftType[fft_type.upper()]
    raise ValueError(f"Unknown FFT type '{fft_type}': needed fft, ifft, rfft or irfft{here()}")
