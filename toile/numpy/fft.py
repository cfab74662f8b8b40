"""Discrete Fourier transforms, with the names and results of `jax.numpy.fft`.

Results are complex64 or float32; for 64-bit input, they are complex128 or float64.
"""

# Transforms run over the last axes: other axes are moved there and back. `lax.fft` takes up to
# three axes at a time; more are transformed in several steps.

# Transforms run over the last axes: other axes are moved there and back. `lax.fft` takes up to
# three axes at a time; more are transformed in several steps.

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, AxisLike, DTypeLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import as_array, canonical_axes, promote_inexact

if TYPE_CHECKING:
    from toile.engine.devices import Device
    from toile.engine.shardings import Sharding

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]

_KINDS = {"fft": "FFT", "ifft": "IFFT", "rfft": "RFFT", "irfft": "IRFFT"}


def _unknown_norm(norm):
    return ValueError(
        f'Invalid norm value {norm}; should be "backward","ortho" or "forward".{here()}'
    )


def _scale(kind, norm, count):
    """The factor that converts the scaling of lax.fft (inverse divided by count) to `norm`."""
    if norm in (None, "backward"):
        return None
    if norm == "ortho":
        root = math.sqrt(count)
        return root if kind in ("ifft", "irfft") else 1 / root
    if norm == "forward":
        return float(count) if kind in ("ifft", "irfft") else 1 / count
    raise _unknown_norm(norm)


def _resized(x, axes, sizes):
    """Truncate or zero-pad `x` to `sizes` along `axes`."""
    starts, limits, pads = [0] * x.ndim, list(x.shape), [(0, 0, 0)] * x.ndim
    for axis, n in zip(axes, sizes):
        limits[axis] = min(n, x.shape[axis])
        pads[axis] = (0, max(n - x.shape[axis], 0), 0)
    if tuple(limits) != x.shape:
        x = lax.slice(x, starts, limits)
    if any(p[1] for p in pads):
        x = lax.pad(x, lax.full((), 0, x.dtype), pads)
    return x


def _lengths_and_axes(name, a, s, axes):
    """Check and return the requested lengths, or None, and the axes to transform."""
    if s is not None:
        s = tuple(h.static_int(n, f"'s' argument of {name}") for n in s)
        if any(n < 1 for n in s):
            raise ValueError(f"Shape should be positive. Got {list(s)} in {name}{here()}")
        if axes is None:
            if len(s) > a.ndim:
                raise ValueError(f"FFT input shape {a.shape} must have at least as many input "
                                 f"dimensions as fft_lengths {s}.{here()}")
            axes = range(a.ndim - len(s), a.ndim)
        elif len(s) != len(axes):
            raise ValueError("Shape and axes have different lengths. Got "
                             f"{len(s)} sizes and {len(axes)} axes in {name}{here()}")
    given = axes
    axes = tuple(range(a.ndim)) if axes is None else canonical_axes(tuple(axes), a.ndim)
    if len(set(axes)) != len(axes):
        raise ValueError(f"jax.numpy.fft.{name} does not support repeated axes. Got axes "
                         f"{given}.{here()}")
    return s, axes


def _transform(name, kind, a, s, axes, norm):
    """Truncate or pad `a` to `s`, and apply the transform `kind` over `axes` (or None)."""
    a = as_array(name, a)
    s, axes = _lengths_and_axes(name, a, s, axes)
    if kind == "rfft" and h.issubdtype(a.dtype, np.complexfloating):
        raise ValueError(f"only real valued inputs supported for rfft, got {a.dtype}{here()}")
    x, = promote_inexact(a)
    if kind != "rfft" and not h.issubdtype(x.dtype, np.complexfloating):
        x = lax.convert_element_type(x, h.dtypes.to_complex_dtype(x.dtype))
    elif x.dtype not in (np.float32, np.float64, np.complex64, np.complex128):
        x = lax.convert_element_type(x, np.float32)
    if not axes:
        return x
    last = tuple(range(x.ndim - len(axes), x.ndim))
    x = jnp.moveaxis(x, axes, last)
    if s is None:
        s = [x.shape[i] for i in last]
        if kind == "irfft":
            s[-1] = max(0, 2 * (s[-1] - 1))
    sizes = list(s)
    if kind == "irfft":
        sizes[-1] = s[-1] // 2 + 1
    x = _resized(x, last, sizes)
    x = _in_turns(x, kind, tuple(s))
    factor = _scale(kind, norm, math.prod(s))
    if factor is not None:
        x = lax.mul(x, lax.full_like(x, factor))
    return jnp.moveaxis(x, last, axes)


def _in_turns(x, kind, sizes):
    """Transform the last three axes together, and each axis before them by a complex transform."""
    call = lambda v, k, n: lax.fft(v, getattr(lax.FftType, _KINDS[k]), n)
    if len(sizes) <= 3:
        return call(x, kind, sizes)
    rank = len(sizes)
    first, rest = x.ndim - rank, sizes[:-3]
    other = "ifft" if kind in ("ifft", "irfft") else "fft"

    def outer_axes(v):
        for d, n in enumerate(rest):
            v = jnp.moveaxis(v, first + d, -1)
            v = jnp.moveaxis(call(v, other, (n,)), -1, first + d)
        return v

    if kind in ("irfft", "ifft"):
        return call(outer_axes(x), kind, sizes[-3:])
    return outer_axes(call(x, kind, sizes[-3:]))


def _check_one_axis(name, axis):
    if isinstance(axis, (tuple, list)):
        raise ValueError(f"jax.numpy.fft.{name} does not support multiple axes. Please use "
                         f"jax.numpy.fft.{name}n. Got axis = {axis!r}.{here()}")


def _one_axis(name, kind, a, n, axis, norm):
    _check_one_axis(name, axis)
    size = None if n is None else (operator.index(n),)
    return _transform(name, kind, a, size, None if axis is None else (axis,), norm)


def fft(a: ArrayLike, n: int | None = None, axis: int = -1,
        norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the discrete Fourier transform along an axis.

    By default, element k of the result is the sum over m of `a[m] * exp(-2j * pi * k * m / n)`.

    Args:
        a: samples, real or complex.
        n: length to which the axis is first truncated or zero-padded; if None, the axis keeps its
            length.
        axis: axis to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array with length `n` along the axis.

    >>> jnp.fft.fft(jnp.array([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _one_axis("fft", "fft", a, n, axis, norm)


def ifft(a: ArrayLike, n: int | None = None, axis: int = -1,
         norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the inverse discrete Fourier transform along an axis: the inverse of `fft`.

    Args:
        a: Fourier coefficients, in the order in which `fft` returns them.
        n: length to which the axis is first truncated or zero-padded; if None, the axis keeps its
            length.
        axis: axis to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array with length `n` along the axis.
    """
    return _one_axis("ifft", "ifft", a, n, axis, norm)


def rfft(a: ArrayLike, n: int | None = None, axis: int = -1,
         norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the discrete Fourier transform of real samples along an axis.

    The coefficients of negative frequencies are left out, because they are the conjugates of the
    coefficients of positive frequencies.

    Args:
        a: real samples.
        n: length to which the axis is first truncated or zero-padded; if None, the axis keeps its
            length.
        axis: axis to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array with length `n // 2 + 1` along the axis.

    Raises:
        ValueError: `a` is complex.

    >>> jnp.fft.rfft(jnp.array([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _one_axis("rfft", "rfft", a, n, axis, norm)


def irfft(a: ArrayLike, n: int | None = None, axis: int = -1,
          norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute real samples from their Fourier coefficients: the inverse of `rfft`.

    Args:
        a: Fourier coefficients, in the order in which `rfft` returns them.
        n: number of samples; None for `2 * (m - 1)`, where m is the length of the axis in `a`. For
            an odd number of samples, `n` must be given.
        axis: axis to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A real array with length `n` along the axis.

    >>> jnp.fft.irfft(jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0])), 3)
    Array([1., 2., 3.], dtype=float32)
    """
    return _one_axis("irfft", "irfft", a, n, axis, norm)


_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _swapped(norm):
    if norm not in _SWAPPED:
        raise _unknown_norm(norm)
    return _SWAPPED[norm]


def hfft(a: ArrayLike, n: int | None = None, axis: int = -1,
         norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the real spectrum of a signal with Hermitian symmetry.

    Args:
        a: first half of the signal, which determines the other half.
        n: number of frequencies; None for `2 * (m - 1)`, where m is the length of the axis in `a`.
        axis: axis to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A real array with length `n` along the axis.
    """
    _check_one_axis("hfft", axis)
    a = as_array("hfft", a)
    size = 2 * (a.shape[axis] - 1) if n is None else n
    return _one_axis("hfft", "irfft", jnp.conj(a), size, axis, _swapped(norm))


def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1,
          norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the first half of a signal from its real spectrum: the inverse of `hfft`.

    Args:
        a: real spectrum.
        n: length to which the axis is first truncated or zero-padded; if None, the axis keeps its
            length.
        axis: axis to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array with length `n // 2 + 1` along the axis.

    Raises:
        ValueError: `a` is complex.
    """
    return jnp.conj(_one_axis("ihfft", "rfft", a, n, axis, _swapped(norm)))


def fftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
         norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the discrete Fourier transform over several axes.

    Args:
        a: samples, real or complex.
        s: lengths to which the axes are first truncated or zero-padded; if None, the axes keep
            their lengths.
        axes: axes to transform; None for the last `len(s)` axes, or for all axes if `s` is None.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array.
    """
    return _transform("fftn", "fft", a, s, axes, norm)


def ifftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the inverse discrete Fourier transform over several axes.

    Args:
        a: Fourier coefficients, in the order in which `fftn` returns them.
        s: lengths to which the axes are first truncated or zero-padded; if None, the axes keep
            their lengths.
        axes: axes to transform; None for the last `len(s)` axes, or for all axes if `s` is None.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array.
    """
    return _transform("ifftn", "ifft", a, s, axes, norm)


def rfftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
          norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the discrete Fourier transform of real samples over several axes.

    The coefficients of negative frequencies along the last transformed axis are left out.

    Args:
        a: real samples.
        s: lengths to which the axes are first truncated or zero-padded; if None, the axes keep
            their lengths.
        axes: axes to transform; None for the last `len(s)` axes, or for all axes if `s` is None.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array. Its last transformed axis has length `n // 2 + 1`, where n is the number of
        samples along it.

    Raises:
        ValueError: `a` is complex.
    """
    return _transform("rfftn", "rfft", a, s, axes, norm)


def irfftn(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
           norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute real samples from Fourier coefficients over several axes: the inverse of `rfftn`.

    Args:
        a: Fourier coefficients, in the order in which `rfftn` returns them.
        s: lengths of the transformed axes in the result. If `s` is None, the axes keep the
            lengths that they have in `a`, except that the last of them gets length `2 * (m - 1)`,
            where m is its length in `a`.
        axes: axes to transform; None for the last `len(s)` axes, or for all axes if `s` is None.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A real array.
    """
    return _transform("irfftn", "irfft", a, s, axes, norm)


def _two_axes(name, kind, a, s, axes, norm):
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes!r}.{here()}")
    return _transform(name, kind, a, s, axes, norm)


def fft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
         norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the discrete Fourier transform over two axes.

    Args:
        a: samples, real or complex.
        s: lengths to which the axes are first truncated or zero-padded; if None, the axes keep
            their lengths.
        axes: the two axes to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array.
    """
    return _two_axes("fft2", "fft", a, s, axes, norm)


def ifft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
          norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the inverse discrete Fourier transform over two axes.

    Args:
        a: Fourier coefficients, in the order in which `fft2` returns them.
        s: lengths to which the axes are first truncated or zero-padded; if None, the axes keep
            their lengths.
        axes: the two axes to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array.
    """
    return _two_axes("ifft2", "ifft", a, s, axes, norm)


def rfft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
          norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute the discrete Fourier transform of real samples over two axes.

    The coefficients of negative frequencies along the second of the two axes are left out.

    Args:
        a: real samples.
        s: lengths to which the axes are first truncated or zero-padded; if None, the axes keep
            their lengths.
        axes: the two axes to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A complex array. The second of the two axes has length `n // 2 + 1`, where n is the number
        of samples along it.

    Raises:
        ValueError: `a` is complex.
    """
    return _two_axes("rfft2", "rfft", a, s, axes, norm)


def irfft2(a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1),
           norm: Literal["backward", "ortho", "forward"] | None = None) -> Array:
    """Compute real samples from Fourier coefficients over two axes: the inverse of `rfft2`.

    Args:
        a: Fourier coefficients, in the order in which `rfft2` returns them.
        s: lengths of the transformed axes in the result. If `s` is None, the first of the two axes
            keeps the length that it has in `a`, and the second gets length `2 * (m - 1)`, where m
            is its length in `a`.
        axes: the two axes to transform.
        norm: scaling of the transforms. "backward" or None divides inverse transforms by the number
            of samples, "forward" divides forward transforms by that number instead, and "ortho"
            divides transforms in both directions by its square root.

    Returns:
        A real array.
    """
    return _two_axes("irfft2", "irfft", a, s, axes, norm)


def _length(name, n):
    if isinstance(n, (tuple, list)):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = "
                         f"{list(n)}.{here()}")
    return operator.index(n)


def _frequencies(name, values, n, d, dtype, device):
    if isinstance(d, (tuple, list)):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got "
                         f"d = {list(d)}.{here()}")
    dtype = h.dtypes.to_inexact_dtype(h.canonical_dtype(np.float64)) if dtype is None else (
        user_dtype(dtype, name))
    k = jnp.asarray(values, dtype=dtype)
    found = jnp.divide(k, lax.convert_element_type(jnp.multiply(d, n), dtype))
    return found if device is None else jnp.asarray(found, device=device)


def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None,
            device: Device | Sharding | None = None) -> Array:
    """Return the frequency of each element in the result of `fft`.

    Args:
        n: number of samples.
        d: distance between samples. If it is in seconds, the frequencies are in hertz.
        dtype: dtype of the result; None for the default float dtype.
        device: device or sharding to place the result on; None for the default device.

    Returns:
        A one-dimensional array of length `n`.

    >>> jnp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    n = _length("fftfreq", n)
    k = np.arange(n)
    return _frequencies("fftfreq", np.where(k < (n + 1) // 2, k, k - n), n, d, dtype,
                        device)


def rfftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None,
             device: Device | Sharding | None = None) -> Array:
    """Return the frequency of each element in the result of `rfft`.

    Args:
        n: number of samples.
        d: distance between samples. If it is in seconds, the frequencies are in hertz.
        dtype: dtype of the result; None for the default float dtype.
        device: device or sharding to place the result on; None for the default device.

    Returns:
        A one-dimensional array of length `n // 2 + 1`.

    >>> jnp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ], dtype=float32)
    """
    n = _length("rfftfreq", n)
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n, d, dtype, device)


def _shift(name, x, axes, direction):
    x = as_array(name, x)
    if axes is None:
        axes = tuple(range(x.ndim))
    axes = canonical_axes(axes, x.ndim)
    shifts = [direction * (x.shape[a] // 2) for a in axes]
    return jnp.roll(x, shifts, axes) if axes else x


def fftshift(x: ArrayLike, axes: AxisLike = None) -> Array:
    """Move frequency 0 from the beginning of each axis to the middle.

    Args:
        x: array whose elements are shifted.
        axes: axis or axes to shift; None for all axes.

    Returns:
        An array with the shape and dtype of `x`.

    >>> jnp.fft.fftshift(jnp.fft.fftfreq(4))
    Array([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)
    """
    return _shift("fftshift", x, axes, 1)


def ifftshift(x: ArrayLike, axes: AxisLike = None) -> Array:
    """Move frequency 0 from the middle of each axis to the beginning: the inverse of `fftshift`.

    Args:
        x: array whose elements are shifted.
        axes: axis or axes to shift; None for all axes.

    Returns:
        An array with the shape and dtype of `x`.
    """
    return _shift("ifftshift", x, axes, -1)
