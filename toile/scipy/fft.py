"""Discrete cosine transforms of type 2 and their inverses, as in `jax.scipy.fft`."""

# Reordering the samples (even ones, then odd ones backward) makes the DCT the real part of a
# rotated FFT of the same length (Makhoul 1980).

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Literal

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike, AxisLike, ShapeLike
from toile.engine.source import here
from toile.nn._promote import array, canonical_axis, inexact, is_complex, to_complex
from toile.numpy._helpers import canonical_axes

__all__ = ["dct", "dctn", "idct", "idctn"]


def _check(name, type, norm):
    if type != 2:
        raise NotImplementedError("Only DCT type 2 is implemented." + here())
    if norm not in (None, "backward", "ortho"):
        raise ValueError(f"jax.scipy.fft.{name}: norm={norm!r} is not implemented{here()}")


def _resized(x: Array, n: int | None, axis: int) -> Array:
    """Pad `x` with zeros, or cut it, to length `n` along `axis`."""
    if n is None or n == x.shape[axis]:
        return x
    pads = [(0, n - x.shape[axis] if a == axis else 0, 0) for a in range(x.ndim)]
    return lax.pad(x, jnp.array(0, x.dtype), pads)


def _along(vector, axis, ndim):
    return vector.reshape([-1 if a == axis else 1 for a in range(ndim)])


def _rotation(n, axis, ndim, dtype):
    """Return `exp(-iπk / 2n)` for `k` from 0 to `n - 1`, along `axis`."""
    k = jnp.arange(n, dtype=dtype).astype(to_complex(dtype))
    return _along(jnp.exp(-0.5j * np.pi * k / n), axis, ndim)


def _ortho(x: Array, axis: int) -> Array:
    """Divide `x` by `√(2n)`, and its first coefficient by another `√2`."""
    n = x.shape[axis]
    factor = np.sqrt(np.where(np.arange(n) == 0, 4.0, 2.0) * n)
    return x / _along(jnp.asarray(factor, x.dtype), axis, x.ndim)


def _split_complex(f: Callable[[Array], Array], x: Array) -> Array:
    return lax.complex(f(x.real), f(x.imag))


def dct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1,
        norm: Literal["backward", "ortho"] | None = None) -> Array:
    """Compute the discrete cosine transform of type 2 along an axis.

    Element `k` of the result is `2 Σ x[j] cos(π k (2j + 1) / (2n))`.

    Args:
        x: array, real or complex.
        type: type of the transform; only 2 is supported.
        n: length to which `x` is first truncated or zero-padded; if None, the axis keeps its
            length.
        axis: axis to transform.
        norm: `"ortho"` for an orthogonal transform: the result is divided by `√(2n)`, and its first
            element is also divided by `√2`. None and `"backward"` mean no scaling.

    Returns:
        An array of a floating-point or complex dtype, with size `n` along `axis`.

    Raises:
        NotImplementedError: `type` is not 2.
        ValueError: `norm` is invalid.

    >>> from toile.scipy import fft
    >>> fft.dct(jnp.array([1.0, 1.0, 1.0]))
    Array([6., 0., 0.], dtype=float32)
    """
    x = array("dct", x)
    _check("dct", type, norm)
    if is_complex(x):
        return _split_complex(functools.partial(dct, n=n, axis=axis, norm=norm), x)
    axis = canonical_axis(axis, x.ndim)
    x = _resized(x, n, axis)
    n = x.shape[axis]
    order = np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]])
    spectrum = jnp.fft.fft(jnp.take(x, order, axis=axis), axis=axis)
    out = 2 * (spectrum * _rotation(n, axis, x.ndim, spectrum.real.dtype)).real
    return _ortho(out, axis) if norm == "ortho" else out


def idct(x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1,
         norm: Literal["backward", "ortho"] | None = None) -> Array:
    """Compute the inverse of the discrete cosine transform of type 2 (`dct`) along an axis.

    Args:
        x: array, real or complex.
        type: type of the transform; only 2 is supported.
        n: length to which `x` is first truncated or zero-padded; if None, the axis keeps its
            length.
        axis: axis to transform.
        norm: scaling that was used in the forward transform; see `dct`.

    Returns:
        An array of a floating-point or complex dtype, with size `n` along `axis`.

    Raises:
        NotImplementedError: `type` is not 2.
        ValueError: `norm` is invalid.
    """
    x = array("idct", x)
    _check("idct", type, norm)
    if is_complex(x):
        return _split_complex(functools.partial(idct, n=n, axis=axis, norm=norm), x)
    axis = canonical_axis(axis, x.ndim)
    (x,) = inexact("idct", _resized(x, n, axis))
    n = x.shape[axis]
    if norm != "ortho":
        x = _ortho(x, axis)
    x = _ortho(x, axis)
    rotation = _rotation(n, axis, x.ndim, x.dtype)
    values = jnp.fft.ifft(x.astype(rotation.dtype) / rotation * (2 * n), axis=axis).real
    order = np.concatenate([np.arange(0, n, 2), np.arange(1, n, 2)[::-1]])
    return jnp.take(values, np.argsort(order), axis=axis)


def _axes(x, s, axes):
    """Return the axes to transform and the lengths along them, which may be None."""
    if s is not None:
        s = list(s) if hasattr(s, "__iter__") else [operator.index(s)]
        if len(s) > x.ndim:
            raise ValueError(f"s must have at most x.ndim ({x.ndim}) elements, got "
                             f"{len(s)}{here()}")
    if axes is None:
        axes = range(x.ndim - len(s), x.ndim) if s is not None else range(x.ndim)
    axes = canonical_axes(axes, x.ndim)
    return axes, [None] * len(axes) if s is None else s


def _in_turns(name, transform, x, type, s, axes, norm):
    """Apply a transform along one axis after another."""
    x = array(name, x)
    _check(name, type, norm)
    for axis, n in zip(*_axes(x, s, axes)):
        x = transform(x, n=n, axis=axis, norm=norm)
    return x


def dctn(x: ArrayLike, type: int = 2, s: ShapeLike | None = None, axes: AxisLike = None,
         norm: Literal["backward", "ortho"] | None = None) -> Array:
    """Compute the discrete cosine transform of type 2 along several axes.

    Args:
        x: array, real or complex.
        type: type of the transform; only 2 is supported.
        s: lengths to which `x` is first truncated or zero-padded along `axes`; if None, the axes
            keep their lengths.
        axes: axes to transform. The default is the last `len(s)` axes, or all axes if `s` is None.
        norm: scaling of the result; see `dct`.

    Returns:
        An array of a floating-point or complex dtype, with the sizes `s` along `axes`.

    Raises:
        NotImplementedError: `type` is not 2.
        ValueError: `norm` is invalid, or `s` has more entries than `x` has axes.
    """
    return _in_turns("dctn", dct, x, type, s, axes, norm)


def idctn(x: ArrayLike, type: int = 2, s: ShapeLike | None = None, axes: AxisLike = None,
          norm: Literal["backward", "ortho"] | None = None) -> Array:
    """Compute the inverse of the discrete cosine transform of type 2 (`dctn`) along several axes.

    Args:
        x: array, real or complex.
        type: type of the transform; only 2 is supported.
        s: lengths to which `x` is first truncated or zero-padded along `axes`; if None, the axes
            keep their lengths.
        axes: axes to transform. The default is the last `len(s)` axes, or all axes if `s` is None.
        norm: scaling that was used in the forward transform; see `dct`.

    Returns:
        An array of a floating-point or complex dtype, with the sizes `s` along `axes`.

    Raises:
        NotImplementedError: `type` is not 2.
        ValueError: `norm` is invalid, or `s` has more entries than `x` has axes.
    """
    return _in_turns("idctn", idct, x, type, s, axes, norm)
