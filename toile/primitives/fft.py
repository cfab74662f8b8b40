"""Discrete Fourier transforms over the last axes.

The complex transforms are symmetric, hence their own transposes; the transposes of the real ones
weight the frequencies that stand for a conjugate pair. float32 and complex64 stay in single
precision. This module may import the engine and other modules of `primitives`.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.bits import eq, or_
from toile.primitives.complexes import conj
from toile.primitives.elementwise import convert, div, select
from toile.primitives.families import (
    Linear,
    broadcast_in_dim,
    full_like,
    mapped_first,
    mul,
    scalar,
)
from toile.primitives.shapes import iota


class FftType(enum.IntEnum):
    """The type of a Fourier transform: forward or inverse, of complex or real signals."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


_NUMPY = {
    FftType.FFT: "fftn",
    FftType.IFFT: "ifftn",
    FftType.RFFT: "rfftn",
    FftType.IRFFT: "irfftn",
}


@dataclass(frozen=True)
class Fft(Linear):
    """The Fourier transform over the last axes, whose lengths in the signal are `fft_lengths`."""

    fft_type: FftType
    fft_lengths: tuple[int, ...]

    can_make_nan = True
    kernel_family = "fft"
    divides = True  # inverse transforms divide by their length

    def infer(self, x: Aval) -> Aval:
        lengths, kind = self.fft_lengths, self.fft_type
        if len(lengths) > x.ndim:
            raise self._unfit(
                f"FFT input shape {x.shape} must have at least as many input dimensions as "
                f"fft_lengths {lengths}", f"at least {len(lengths)} axes", x,
            )  # fmt: skip
        batch = x.shape[: x.ndim - len(lengths)]
        half = (*lengths[:-1], lengths[-1] // 2 + 1)
        if kind is FftType.RFFT:
            if x.dtype not in (np.float32, np.float64):
                raise self._unfit(
                    f"RFFT input must be float32 or float64, got {dtypes.name_of(x.dtype)}",
                    "real input", x,
                )  # fmt: skip
        elif dtypes.kind(x.dtype) != "c":
            raise self._unfit(
                f"{'IRFFT' if kind is FftType.IRFFT else 'FFT'} input must be complex64 or "
                f"complex128, got {dtypes.name_of(x.dtype)}", "complex input", x,
            )  # fmt: skip
        wanted = half if kind is FftType.IRFFT else lengths
        if x.shape[len(batch) :] != wanted:
            name, equal = kind.name.replace("IFFT", "FFT"), f"fft_lengths {lengths}"
            if kind is FftType.IRFFT:
                equal = f"all except the last fft_length, got fft_lengths={lengths}"
            raise self._unfit(
                f"{name} input shape {x.shape} minor dimensions must be equal to {equal}",
                f"last axes of sizes {wanted}", x,
            )  # fmt: skip
        if kind is FftType.RFFT:
            return Aval((*batch, *half), dtypes.to_complex_dtype(x.dtype), x.weak_type)
        if kind is FftType.IRFFT:
            return Aval((*batch, *lengths), dtypes.dtype_to_real(x.dtype), x.weak_type)
        return x

    def _unfit(self, said: str, needed: str, x: Aval) -> ValueError:
        return ValueError(
            f"{said} ({self.fft_type.name.lower()}: needed {needed}, got {x.str_short()}){here()}"
        )

    def eager(self, xp: Any, x: Any) -> Any:
        out = self.infer(Aval(x.shape, x.dtype))
        if not x.size or not out.size:
            return xp.zeros(out.shape, out.dtype)
        axes = tuple(range(x.ndim - len(self.fft_lengths), x.ndim))
        transform = getattr(xp.fft, _NUMPY[self.fft_type])
        return transform(x, s=self.fft_lengths, axes=axes).astype(out.dtype, copy=False)

    def transpose(self, ct: Any, x: Any) -> Any:
        size = math.prod(self.fft_lengths)
        if self.fft_type is FftType.RFFT:
            back = Fft(FftType.IRFFT, self.fft_lengths)(div(conj(ct), self._weights(ct)))
            return mul(back, full_like(back, size))
        if self.fft_type is FftType.IRFFT:
            back = Fft(FftType.RFFT, self.fft_lengths)(ct)
            return conj(mul(back, div(self._weights(back), full_like(back, size))))
        return self(ct)

    def _weights(self, x: Any) -> Any:
        """The number of frequencies of the full spectrum behind each one of the half spectrum."""
        n, m = self.fft_lengths[-1], x.shape[-1]
        k = iota(np.int32, (m,))
        single = eq(k, full_like(k, 0))
        if n % 2 == 0:
            single = or_(single, eq(k, full_like(k, n // 2)))
        ones, twos = (broadcast_in_dim(scalar(v, np.float32), (m,), ()) for v in (1, 2))
        weights = convert(select(single, ones, twos), x.dtype)
        return broadcast_in_dim(weights, x.shape, (x.ndim - 1,))

    vmap = mapped_first

    def flops(self, *avals: Aval) -> int:
        size = math.prod(self.fft_lengths)
        return int(5 * avals[0].size * math.log2(max(size, 2)))
