"""Convolution and correlation of arrays, directly or through the FFT."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.api import vmap
from toile.engine.annotations import Array, ArrayLike, AxisLike
from toile.engine.source import here
from toile.nn._promote import canonical_axis, inexact

if TYPE_CHECKING:
    from toile.lax.contractions import PrecisionLike

_MODES = ("same", "full", "valid")


def _ordered(in1, in2):
    """Return whether `in1` is at least as large as `in2` in all dimensions, and vice versa."""
    pairs = list(zip(in1.shape, in2.shape))
    return all(a >= b for a, b in pairs), all(a <= b for a, b in pairs)


def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: Literal["full", "same", "valid"] = "full",
                axes: AxisLike = None) -> Array:
    """Convolve two arrays by fast Fourier transforms.

    This method is efficient if both arrays are large.

    Args:
        in1, in2: arrays with the same number of dimensions.
        mode: part of the convolution to return: all of it (`"full"`), the central part with the
            shape of `in1` (`"same"`), or the part that does not depend on zero padding (`"valid"`).
        axes: axes to convolve along; None for all. The other axes are batch axes, whose sizes
            must be the same in both arrays.

    Returns:
        An array of a floating-point or complex dtype.

    Raises:
        ValueError: the shapes do not match, or `mode` is invalid.

    >>> from toile.scipy import signal
    >>> signal.fftconvolve(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])).round(3)
    Array([ 3., 10.,  8.], dtype=float32)
    """
    in1, in2 = inexact("fftconvolve", in1, in2)
    if in1.ndim != in2.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality" + here())
    if mode not in _MODES:
        raise ValueError("mode must be one of ['same', 'full', 'valid']" + here())

    def convolve(a, b):
        return _fft_convolve(a, b, mode)

    if axes is None:
        return convolve(in1, in2)
    several = axes if isinstance(axes, Iterable) else (axes,)
    chosen = {canonical_axis(a, in1.ndim) for a in several}
    mapped = [a for a in range(in1.ndim) if a not in chosen]
    if any(in1.shape[a] != in2.shape[a] for a in mapped):
        raise ValueError(f"mapped axes must have same shape; got in1.shape={in1.shape!r} "
                         f"in2.shape={in2.shape!r} axes={tuple(sorted(chosen))!r}{here()}")
    for axis in mapped:
        convolve = vmap(convolve, in_axes=axis, out_axes=axis)
    return convolve(in1, in2)


def _fast_length(n):
    """The next even number without prime factors above 5: transforms of such lengths are fast."""
    odd = [3**i * 5**j for i in range(20) for j in range(14) if 3**i * 5**j <= n]
    return n if n < 2 else min(m << max(1, (-(-n // m) - 1).bit_length()) for m in odd)


def _fft_convolve(in1, in2, mode):
    full = tuple(a + b - 1 for a, b in zip(in1.shape, in2.shape))
    if mode == "valid":
        covers, covered = _ordered(in1, in2)
        if not (covers or covered):
            raise ValueError("For 'valid' mode, One input must be at least as large as the other "
                             "in every dimension." + here())
        if covered:
            in1, in2 = in2, in1
    if all(a == 1 or b == 1 for a, b in zip(in1.shape, in2.shape)):
        out = in1 * in2
    else:
        fast = tuple(map(_fast_length, full))  # with zeros at the end, which are cut off below
        forth, back = (jnp.fft.fftn, jnp.fft.ifftn) if jnp.iscomplexobj(in1) else (
            jnp.fft.rfftn, jnp.fft.irfftn)
        out = back(forth(in1, fast) * forth(in2, fast), fast)
    shape = {
        "full": full,
        "same": in1.shape,
        "valid": tuple(a - b + 1 for a, b in zip(in1.shape, in2.shape)),
    }[mode]
    start = [(f - n) // 2 for f, n in zip(full, shape)]
    return out[tuple(slice(i, i + n) for i, n in zip(start, shape))]


def _convolve_direct(in1, in2, mode, precision):
    if mode not in _MODES:
        raise ValueError("mode must be one of ['full', 'same', 'valid']" + here())
    in1, in2 = inexact("convolve", in1, in2)
    if in1.ndim != in2.ndim:
        raise ValueError("in1 and in2 must have the same number of dimensions" + here())
    if in1.size == 0 or in2.size == 0:
        raise ValueError(f"zero-size arrays not supported in convolutions, got shapes {in1.shape} "
                         f"and {in2.shape}.{here()}")
    covers, covered = _ordered(in1, in2)
    if not (covers or covered):
        raise ValueError("One input must be smaller than the other in every dimension." + here())
    second = in2.shape
    if covered:
        in1, in2 = in2, in1
    padding = []
    for n, m in zip(in2.shape, second):  # "same" is centered on the output of the first argument
        before, after = {
            "full": (n - 1, n - 1),
            "same": (n - 1 - (m - 1) // 2, n - m + (m - 1) // 2),
            "valid": (0, 0),
        }[mode]
        padding.append((before, after))
    out = lax.conv_general_dilated(in1[None, None], jnp.flip(in2)[None, None], (1,) * in1.ndim,
                                   padding, precision=precision)
    return out[0, 0]


def convolve(in1: ArrayLike, in2: ArrayLike, mode: Literal["full", "same", "valid"] = "full",
             method: Literal["auto", "direct", "fft"] = "auto",
             precision: PrecisionLike = None) -> Array:
    """Convolve two arrays.

    Args:
        in1, in2: arrays with the same number of dimensions. Unless `method` is `"fft"`, one must be
            at least as large as the other in every dimension.
        mode: part of the convolution to return: all of it (`"full"`), the central part with the
            shape of `in1` (`"same"`), or the part that does not depend on zero padding (`"valid"`).
        method: `"fft"` to use `fftconvolve`; `"auto"` or `"direct"` to compute the sums directly.
        precision: precision of the multiplications, as in `lax.conv_general_dilated`. It is ignored
            if `method` is `"fft"`.

    Returns:
        An array of a floating-point or complex dtype.

    Raises:
        ValueError: the shapes do not match, or `mode` or `method` is invalid.

    Differences:
        In SciPy, `"auto"` chooses the faster method, and the result for integer arrays is an
        integer array.

    >>> from toile.scipy import signal
    >>> signal.convolve(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    Array([ 3., 10.,  8.], dtype=float32)
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode=mode)
    if method not in ("direct", "auto"):
        raise ValueError(f"Got method={method!r}; expected 'auto', 'fft', or 'direct'.{here()}")
    return _convolve_direct(in1, in2, mode, precision)


def correlate(in1: ArrayLike, in2: ArrayLike, mode: Literal["full", "same", "valid"] = "full",
              method: Literal["auto", "direct", "fft"] = "auto",
              precision: PrecisionLike = None) -> Array:
    """Cross-correlate two arrays: convolve `in1` with the reversed complex conjugate of `in2`.

    Args:
        in1, in2: arrays with the same number of dimensions. Unless `method` is `"fft"`, one must be
            at least as large as the other in every dimension.
        mode: part of the correlation to return: all of it (`"full"`), the central part with the
            shape of `in1` (`"same"`), or the part that does not depend on zero padding (`"valid"`).
        method: `"fft"` to use `fftconvolve`; `"auto"` or `"direct"` to compute the sums directly.
        precision: precision of the multiplications, as in `lax.conv_general_dilated`. It is ignored
            if `method` is `"fft"`.

    Returns:
        An array of a floating-point or complex dtype.

    Raises:
        ValueError: the shapes do not match, or `mode` or `method` is invalid.

    Differences:
        In SciPy, `"auto"` chooses the faster method, and the result for integer arrays is an
        integer array.

    >>> from toile.scipy import signal
    >>> signal.correlate(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    Array([ 4., 11.,  6.], dtype=float32)
    """
    return convolve(in1, jnp.flip(jnp.conj(in2)), mode, method=method, precision=precision)


def _check_2d(name, in1, in2, boundary, fillvalue):
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"{name}() only supports boundary='fill', fillvalue=0{here()}")
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ValueError(f"{name}() only supports 2-dimensional inputs.{here()}")


def convolve2d(in1: ArrayLike, in2: ArrayLike, mode: Literal["full", "same", "valid"] = "full",
               boundary: Literal["fill"] = "fill", fillvalue: float = 0,
               precision: PrecisionLike = None) -> Array:
    """Convolve two matrices.

    Args:
        in1, in2: matrices. One must be at least as large as the other in both dimensions.
        mode: part of the convolution to return: all of it (`"full"`), the central part with the
            shape of `in1` (`"same"`), or the part that does not depend on zero padding (`"valid"`).
        boundary: must be `"fill"`; other values are not supported.
        fillvalue: must be 0; other values are not supported.
        precision: precision of the multiplications, as in `lax.conv_general_dilated`.

    Returns:
        A matrix of a floating-point or complex dtype.

    Raises:
        NotImplementedError: `boundary` is not `"fill"`, or `fillvalue` is not 0.
        ValueError: the shapes do not match, or `mode` is invalid.
    """
    _check_2d("convolve2d", in1, in2, boundary, fillvalue)
    return _convolve_direct(in1, in2, mode, precision)


def correlate2d(in1: ArrayLike, in2: ArrayLike, mode: Literal["full", "same", "valid"] = "full",
                boundary: Literal["fill"] = "fill", fillvalue: float = 0,
                precision: PrecisionLike = None) -> Array:
    """Cross-correlate two matrices: convolve `in1` with the reversed complex conjugate of `in2`.

    Args:
        in1, in2: matrices. One must be at least as large as the other in both dimensions.
        mode: part of the correlation to return: all of it (`"full"`), the central part with the
            shape of `in1` (`"same"`), or the part that does not depend on zero padding (`"valid"`).
        boundary: must be `"fill"`; other values are not supported.
        fillvalue: must be 0; other values are not supported.
        precision: precision of the multiplications, as in `lax.conv_general_dilated`.

    Returns:
        A matrix of a floating-point or complex dtype.

    Raises:
        NotImplementedError: `boundary` is not `"fill"`, or `fillvalue` is not 0.
        ValueError: the shapes do not match, or `mode` is invalid.
    """
    _check_2d("correlate2d", in1, in2, boundary, fillvalue)
    a, b = jnp.asarray(in1), jnp.asarray(in2)
    covered = _ordered(a, b)[1]
    if covered and (mode == "full" or (mode == "valid" and a.shape != b.shape)):
        # The smaller array slides: correlate the other way round, then conjugate back.
        out = _convolve_direct(jnp.flip(b), jnp.conj(a), mode, precision)
        return jnp.conj(out) if mode == "full" else out
    return jnp.flip(_convolve_direct(jnp.flip(a), jnp.conj(b), mode, precision))
