"""Bessel functions and spherical harmonics.

`lax` computes I₀ and I₁. The functions J_0, ..., J_v are computed by Miller's backward recurrence,
and spherical harmonics by the recurrence of the normalized associated Legendre functions, degree by
degree.
"""

from __future__ import annotations

import operator

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.nn._promote import inexact, is_complex


def i0e(x: ArrayLike) -> Array:
    """Compute the exponentially scaled modified Bessel function of order 0: `exp(-|x|) I₀(x)`.

    The result is finite even for large `x`, where `i0` overflows.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.
    """
    return lax.bessel_i0e(*inexact("i0e", x))


def i0(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind of order 0.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.
    """
    (x,) = inexact("i0", x)
    return jnp.exp(jnp.abs(x)) * lax.bessel_i0e(x)


def i1e(x: ArrayLike) -> Array:
    """Compute the exponentially scaled modified Bessel function of order 1: `exp(-|x|) I₁(x)`.

    The result is finite even for large `x`, where `i1` overflows.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.
    """
    return lax.bessel_i1e(*inexact("i1e", x))


def i1(x: ArrayLike) -> Array:
    """Compute the modified Bessel function of the first kind of order 1.

    Args:
        x: real array or number.

    Returns:
        A floating-point array with the shape of `x`.
    """
    (x,) = inexact("i1", x)
    return jnp.exp(jnp.abs(x)) * lax.bessel_i1e(x)


def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Compute the Bessel functions of the first kind up to order `v`: `J_0(z)`, ..., `J_v(z)`.

    All orders are computed together by a recurrence that runs from order `n_iter` down to 0. In
    `float32`, the recurrence overflows if `z` is small compared with `n_iter` (below about 3.5 if
    `n_iter` is 50), and the result is NaN. Use a smaller `n_iter` in that case. The result is also
    NaN at `z = 0`.

    Args:
        z: real array or number.
        v: highest order, a nonnegative integer.
        n_iter: order at which the recurrence starts. It should be much larger than both `v` and
            `z`.

    Returns:
        An array of shape `(v + 1, *z.shape)`, with a floating-point dtype.

    Raises:
        ValueError: `z` is complex.

    >>> from toile.scipy import special
    >>> special.bessel_jn(jnp.array(1.0), v=2, n_iter=20).round(4)
    Array([0.7652, 0.4401, 0.1149], dtype=float32)
    """
    (z,) = inexact("bessel_jn", z)
    if is_complex(z):
        raise ValueError("complex input not supported." + here())
    v, n_iter = operator.index(v), int(n_iter)

    def step(carry, k):
        # f(k) = 2(k+1)/z f(k+1) - f(k+2), from an arbitrary tiny start; J_k is proportional to f(k)
        older, old, total = carry
        f = 2.0 * (k + 1.0) * old / z - older
        total = total + jnp.where(jnp.mod(k, 2) == 0, 2.0 * f, jnp.zeros_like(f))
        return (old, f, total), f

    zero = jnp.zeros(z.shape, z.dtype)
    init = (zero, jnp.full(z.shape, 1e-16, z.dtype), zero)
    (_, _, total), values = lax.scan(step, init, jnp.arange(n_iter + 1, dtype=z.dtype),
                                     reverse=True)
    return values[: v + 1] / (total - values[0])[None]  # J_0 + 2 Σ J_2k = 1 fixes the factor


def _legendre_rows(l_max, x):
    """Compute the normalized P_l^m(x), as an array indexed by m, l and the elements of `x`."""
    m = np.arange(l_max + 1, dtype=np.float64)
    sine = jnp.sqrt(1.0 - x * x)
    diagonal = jnp.full(x.shape, 0.5 / np.sqrt(np.pi), x.dtype)
    column = lambda values: values.astype(x.dtype).reshape(-1, *[1] * x.ndim)
    rows, before, last = [], None, None
    for degree in range(l_max + 1):
        row = jnp.zeros((l_max + 1, *x.shape), x.dtype)
        if degree:
            inside = m < degree
            gap = np.where(inside, degree**2 - m**2, 1.0)
            a = np.where(inside, np.sqrt((4.0 * degree**2 - 1.0) / gap), 0.0)
            row = column(a) * (x[None] * last)
            if degree > 1:
                ratio = (2.0 * degree + 1) * np.maximum((degree - 1.0) ** 2 - m**2, 0.0)
                b = np.where(inside, np.sqrt(ratio / ((2.0 * degree - 3) * gap)), 0.0)
                row = row - column(b) * before
            diagonal = diagonal * (-np.sqrt(1.0 + 0.5 / degree)) * sine
        row = row.at[degree].set(diagonal.astype(x.dtype))
        rows.append(row)
        before, last = last, row
    return jnp.stack(rows, axis=1)


def sph_harm_y(n: ArrayLike, m: ArrayLike, theta: ArrayLike, phi: ArrayLike, diff_n: None = None,
               n_max: int | None = None) -> Array:
    """Compute spherical harmonics, normalized so that their squared magnitude integrates to 1.

    Args:
        n: degrees, a vector of nonnegative integers.
        m: orders, integers with `|m| ≤ n`: an array with the shape of `n`, or one order for all
            elements.
        theta: polar angles, from 0 at the north pole to π: an array with the shape of `n`, or one
            angle for all elements.
        phi: azimuthal angles, from 0 to 2π: an array with the shape of `n`, or one angle for all
            elements.
        diff_n: must be None; other values are not supported.
        n_max: upper bound on the degrees; None for the largest element of `n`. Under `jit`, a bound
            is required. Degrees above the bound are replaced with `n_max`.

    Returns:
        A complex vector with the length of `n`.

    Raises:
        NotImplementedError: `diff_n` is given.
        TypeError: `n` is a scalar.

    Differences:
        SciPy accepts arrays of any shapes that broadcast against each other.

    >>> from toile.scipy import special
    >>> special.sph_harm_y(jnp.array([1]), jnp.array([0]), jnp.array([0.0]), jnp.array([0.0]))
    Array([0.48860252+0.j], dtype=complex64)
    """
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to jax.scipy.special.sph_harm_y is not "
                                  "supported." + here())
    polar = jnp.array([theta]) if jnp.isscalar(theta) else theta
    n_max = int(jnp.max(n)) if n_max is None else operator.index(n_max)
    degree, order, azimuth = jnp.asarray(n), jnp.asarray(m), jnp.asarray(phi)
    table = _legendre_rows(n_max, jnp.cos(polar))
    size = jnp.abs(order)
    value = table.at[size, degree, jnp.arange(len(degree))].get(mode="clip")
    angle = size * azimuth
    out = lax.complex(value * jnp.cos(angle), value * jnp.sin(angle))
    return jnp.where(order < 0, (-1.0) ** size * jnp.conjugate(out), out)
