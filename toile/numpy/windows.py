"""Window functions of a static number of points: bartlett, blackman, hamming, hanning, kaiser."""

import math

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.numpy import _helpers as h

__all__ = ["bartlett", "blackman", "hamming", "hanning", "kaiser"]


def _points(name, M):
    """0, 1, ..., M - 1 as floats, or ones for M <= 1 (the window of a single point is one)."""
    count = h.static_int(M, f"M argument of jnp.{name}")
    dtype = h.canonical_dtype(np.float64)
    if count <= 1:
        return lax.full((max(count, 0),), 1, dtype), True, count
    return jnp.arange(count, dtype=dtype), False, count


def bartlett(M):
    """The triangular window of M points."""
    n, trivial, M = _points("bartlett", M)
    if trivial:
        return n
    return 1 - abs((2 * n - (M - 1)) / (M - 1))


def _cosines(name, M, weights):
    """Sum of weights[k] * cos(2 pi k n / (M - 1))."""
    n, trivial, M = _points(name, M)
    if trivial:
        return n
    out = weights[0]
    for k, w in enumerate(weights[1:], 1):
        out = out + w * jnp.cos(2 * math.pi * k * n / (M - 1))
    return out


def blackman(M):
    """The Blackman window of M points."""
    return _cosines("blackman", M, (0.42, -0.5, 0.08))


def hamming(M):
    """The Hamming window of M points."""
    return _cosines("hamming", M, (0.54, -0.46))


def hanning(M):
    """The Hann window of M points."""
    return _cosines("hanning", M, (0.5, -0.5))


def kaiser(M, beta):
    """The Kaiser window of M points: I0(beta sqrt(1 - t^2)) / I0(beta), t from -1 to 1."""
    n, trivial, M = _points("kaiser", M)
    if trivial:
        return n
    alpha = 0.5 * (M - 1)
    t = (n - alpha) / alpha
    root = jnp.sqrt(1 - jnp.square(t))
    whole = jnp.i0(lax.convert_element_type(h.arr(beta), n.dtype))
    return jnp.i0(jnp.multiply(beta, root)) / whole
