"""Window functions with a static number of points: bartlett, blackman, hamming, hanning, kaiser."""

from __future__ import annotations

import math

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.numpy import _helpers as h


def _points(name, M):
    """Return 0, 1, ..., M - 1 as floats, or ones for M <= 1 (the window of one point is 1)."""
    what = f"M argument of jnp.{name}"
    value = h.concrete(M, what)
    rounded = value.ndim == 0 and value.dtype.kind in "bf"  # as in NumPy, 5.0 points are 5 points
    count = int(value) if rounded else h.static_int(M, what)
    dtype = h.canonical_dtype(np.float64)
    if count <= 1:
        return lax.full((max(count, 0),), 1, dtype), True, count
    return jnp.arange(count, dtype=dtype), False, count


def bartlett(M: int) -> Array:
    """Compute the Bartlett window, a triangle that is 0 at both ends.

    Args:
        M: number of points; it cannot be traced.

    Returns:
        An array of shape (M,) in the default float dtype. It is [1] if `M` is 1, and empty if `M`
        is less than 1.

    >>> jnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    n, trivial, M = _points("bartlett", M)
    if trivial:
        return n
    return 1 - abs((2 * n - (M - 1)) / (M - 1))


def _cosines(name, M, weights):
    """Compute the sum of weights[k] * cos(2 pi k n / (M - 1))."""
    n, trivial, M = _points(name, M)
    if trivial:
        return n
    out = weights[0]
    for k, w in enumerate(weights[1:], 1):
        out = out + w * jnp.cos(2 * math.pi * k * n / (M - 1))
    return out


def blackman(M: int) -> Array:
    """Compute the Blackman window, the sum of a constant and two cosines; it is 0 at both ends.

    Point n is `0.42 - 0.5 * cos(t) + 0.08 * cos(2 * t)`, where `t = 2 * pi * n / (M - 1)`.

    Args:
        M: number of points; it cannot be traced.

    Returns:
        An array of shape (M,) in the default float dtype. It is [1] if `M` is 1, and empty if `M`
        is less than 1.
    """
    return _cosines("blackman", M, (0.42, -0.5, 0.08))


def hamming(M: int) -> Array:
    """Compute the Hamming window, a raised cosine that falls to 0.08 at both ends.

    Point n is `0.54 - 0.46 * cos(2 * pi * n / (M - 1))`.

    Args:
        M: number of points; it cannot be traced.

    Returns:
        An array of shape (M,) in the default float dtype. It is [1] if `M` is 1, and empty if `M`
        is less than 1.
    """
    return _cosines("hamming", M, (0.54, -0.46))


def hanning(M: int) -> Array:
    """Compute the Hann window, a raised cosine that falls to 0 at both ends.

    Point n is `0.5 - 0.5 * cos(2 * pi * n / (M - 1))`.

    Args:
        M: number of points; it cannot be traced.

    Returns:
        An array of shape (M,) in the default float dtype. It is [1] if `M` is 1, and empty if `M`
        is less than 1.
    """
    return _cosines("hanning", M, (0.5, -0.5))


def kaiser(M: int, beta: ArrayLike) -> Array:
    """Compute the Kaiser window, `i0(beta * sqrt(1 - t**2)) / i0(beta)`, where t runs from -1 to 1.

    Args:
        M: number of points; it cannot be traced.
        beta: shape parameter: 0 makes all points 1, and larger values make the window narrower. It
            may be traced.

    Returns:
        An array of shape (M,) in the default float dtype. It is [1] if `M` is 1, and empty if `M`
        is less than 1.
    """
    n, trivial, M = _points("kaiser", M)
    if trivial:
        return n
    alpha = 0.5 * (M - 1)
    t = (n - alpha) / alpha
    root = jnp.sqrt(1 - jnp.square(t))
    whole = jnp.i0(lax.convert_element_type(h.arr(beta), n.dtype))
    return jnp.i0(jnp.multiply(beta, root)) / whole
