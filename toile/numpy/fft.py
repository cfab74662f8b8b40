"""Discrete Fourier transforms, as `jax.numpy.fft`: checking and padding over `lax.fft`.

Transforms run over the last axes: others are moved there and back. `lax.fft` takes up to three axes
at a time; more are done in turns.
"""

import math
import operator

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy._dtypes import user_dtype
from toile.numpy._helpers import as_array, canonical_axes, canonical_axis, promote_inexact

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
    """The factor that turns lax.fft's convention (inverse divides by count) into `norm`'s."""
    if norm in (None, "backward"):
        return None
    if norm == "ortho":
        root = math.sqrt(count)
        return root if kind in ("ifft", "irfft") else 1 / root
    if norm == "forward":
        return float(count) if kind in ("ifft", "irfft") else 1 / count
    raise _unknown_norm(norm)


def _resized(x, axes, sizes):
    """`x` cut or padded with zeros to `sizes` along `axes`."""
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
    """The lengths asked for, or None, and the axes to transform, checked."""
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
    """The transform `kind` of `a` over `axes` (a sequence or None), cut or padded to `s`."""
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
    """Real transforms touch the last axis first (or last); the rest are complex transforms."""
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


def fft(a, n=None, axis=-1, norm=None):
    """The transform of complex samples along one axis."""
    return _one_axis("fft", "fft", a, n, axis, norm)


def ifft(a, n=None, axis=-1, norm=None):
    """The inverse of fft."""
    return _one_axis("ifft", "ifft", a, n, axis, norm)


def rfft(a, n=None, axis=-1, norm=None):
    """The non-negative frequencies of real samples along one axis."""
    return _one_axis("rfft", "rfft", a, n, axis, norm)


def irfft(a, n=None, axis=-1, norm=None):
    """The inverse of rfft: `n` real samples."""
    return _one_axis("irfft", "irfft", a, n, axis, norm)


_SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def _swapped(norm):
    if norm not in _SWAPPED:
        raise _unknown_norm(norm)
    return _SWAPPED[norm]


def hfft(a, n=None, axis=-1, norm=None):
    """The real spectrum of a signal with Hermitian symmetry, given by its first half."""
    _check_one_axis("hfft", axis)
    a = as_array("hfft", a)
    size = 2 * (a.shape[axis] - 1) if n is None else n
    return _one_axis("hfft", "irfft", jnp.conj(a), size, axis, _swapped(norm))


def ihfft(a, n=None, axis=-1, norm=None):
    """The inverse of hfft."""
    return jnp.conj(_one_axis("ihfft", "rfft", a, n, axis, _swapped(norm)))


def fftn(a, s=None, axes=None, norm=None):
    """The transform over several axes, all by default."""
    return _transform("fftn", "fft", a, s, axes, norm)


def ifftn(a, s=None, axes=None, norm=None):
    """The inverse of fftn."""
    return _transform("ifftn", "ifft", a, s, axes, norm)


def rfftn(a, s=None, axes=None, norm=None):
    """The transform of real samples over several axes, the last one halved."""
    return _transform("rfftn", "rfft", a, s, axes, norm)


def irfftn(a, s=None, axes=None, norm=None):
    """The inverse of rfftn."""
    return _transform("irfftn", "irfft", a, s, axes, norm)


def _two_axes(name, kind, a, s, axes, norm):
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes!r}.{here()}")
    return _transform(name, kind, a, s, axes, norm)


def fft2(a, s=None, axes=(-2, -1), norm=None):
    """The transform over two axes."""
    return _two_axes("fft2", "fft", a, s, axes, norm)


def ifft2(a, s=None, axes=(-2, -1), norm=None):
    """The inverse of fft2."""
    return _two_axes("ifft2", "ifft", a, s, axes, norm)


def rfft2(a, s=None, axes=(-2, -1), norm=None):
    """The transform of real samples over two axes."""
    return _two_axes("rfft2", "rfft", a, s, axes, norm)


def irfft2(a, s=None, axes=(-2, -1), norm=None):
    """The inverse of rfft2."""
    return _two_axes("irfft2", "irfft", a, s, axes, norm)


def _length(name, n):
    if isinstance(n, (tuple, list)):
        raise ValueError(f"The n argument of jax.numpy.fft.{name} only takes an int. Got n = "
                         f"{list(n)}.{here()}")
    return operator.index(n)


def _frequencies(name, values, n, d, dtype):
    if isinstance(d, (tuple, list)):
        raise ValueError(f"The d argument of jax.numpy.fft.{name} only takes a single value. Got "
                         f"d = {list(d)}.{here()}")
    dtype = h.dtypes.to_inexact_dtype(h.canonical_dtype(np.float64)) if dtype is None else (
        user_dtype(dtype, name))
    k = jnp.asarray(values, dtype=dtype)
    return jnp.divide(k, lax.convert_element_type(jnp.multiply(d, n), dtype))


def fftfreq(n, d=1.0, *, dtype=None, device=None):
    """The frequencies of fft's results for samples `d` apart."""
    n = _length("fftfreq", n)
    k = np.arange(n)
    return _frequencies("fftfreq", np.where(k < (n + 1) // 2, k, k - n), n, d, dtype)


def rfftfreq(n, d=1.0, *, dtype=None, device=None):
    """The frequencies of rfft's results for samples `d` apart."""
    n = _length("rfftfreq", n)
    return _frequencies("rfftfreq", np.arange(n // 2 + 1), n, d, dtype)


def _shift(name, x, axes, direction):
    x = as_array(name, x)
    if axes is None:
        axes = tuple(range(x.ndim))
    axes = axes if isinstance(axes, (tuple, list)) else (axes,)
    axes = [canonical_axis(a, x.ndim) for a in axes]
    shifts = [direction * (x.shape[a] // 2) for a in axes]
    return jnp.roll(x, shifts, axes) if axes else x


def fftshift(x, axes=None):
    """`x` with frequency zero moved to the middle."""
    return _shift("fftshift", x, axes, 1)


def ifftshift(x, axes=None):
    """The inverse of fftshift."""
    return _shift("ifftshift", x, axes, -1)
