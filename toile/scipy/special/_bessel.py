"""Bessel functions and spherical harmonics.

I₀ and I₁ come from `lax`; J_0 ... J_v from Miller's backward recurrence; spherical harmonics from
the normalised associated Legendre recurrence, row by row in the degree.
"""

import operator

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.source import here
from toile.nn._promote import inexact, is_complex

__all__ = ["bessel_jn", "i0", "i0e", "i1", "i1e", "sph_harm_y"]


def i0e(x):
    """exp(-|x|)·I₀(x)."""
    return lax.bessel_i0e(*inexact("i0e", x))


def i0(x):
    """The modified Bessel function I₀."""
    (x,) = inexact("i0", x)
    return jnp.exp(jnp.abs(x)) * lax.bessel_i0e(x)


def i1e(x):
    """exp(-|x|)·I₁(x)."""
    return lax.bessel_i1e(*inexact("i1e", x))


def i1(x):
    """The modified Bessel function I₁."""
    (x,) = inexact("i1", x)
    return jnp.exp(jnp.abs(x)) * lax.bessel_i1e(x)


def bessel_jn(z, *, v, n_iter=50):
    """J_0(z) ... J_v(z), stacked on a leading axis."""
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
    return values[: v + 1] / (total - values[0])  # J_0 + 2 Σ J_2k = 1 fixes the factor


def _legendre_rows(l_max, x):
    """Normalised P_l^m(x) as an array `(l_max + 1, l_max + 1, n)` of [m, l]."""
    m = np.arange(l_max + 1, dtype=np.float64)
    sine = jnp.sqrt(1.0 - x * x)
    diagonal = jnp.full(x.shape, 0.5 / np.sqrt(np.pi), x.dtype)
    rows, before, last = [], None, None
    for degree in range(l_max + 1):
        row = jnp.zeros((l_max + 1, *x.shape), x.dtype)
        if degree:
            inside = m < degree
            gap = np.where(inside, degree**2 - m**2, 1.0)
            a = np.where(inside, np.sqrt((4.0 * degree**2 - 1.0) / gap), 0.0)
            row = a.astype(x.dtype)[:, None] * (x * last)
            if degree > 1:
                ratio = (2.0 * degree + 1) * np.maximum((degree - 1.0) ** 2 - m**2, 0.0)
                b = np.where(inside, np.sqrt(ratio / ((2.0 * degree - 3) * gap)), 0.0)
                row = row - b.astype(x.dtype)[:, None] * before
            diagonal = diagonal * (-np.sqrt(1.0 + 0.5 / degree)) * sine
        row = row.at[degree].set(diagonal.astype(x.dtype))
        rows.append(row)
        before, last = last, row
    return jnp.stack(rows, axis=1)


def sph_harm_y(n, m, theta, phi, diff_n=None, n_max=None):
    """Spherical harmonic of degree n and order m at polar angle theta and azimuth phi."""
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to jax.scipy.special.sph_harm_y is not "
                                  "supported." + here())
    if jnp.isscalar(theta):
        theta = jnp.array([theta])
    n_max = int(jnp.max(n)) if n_max is None else operator.index(n_max)
    n, m, phi = jnp.asarray(n), jnp.asarray(m), jnp.asarray(phi)
    table = _legendre_rows(n_max, jnp.cos(theta))
    order = jnp.abs(m)
    value = table.at[order, n, jnp.arange(len(n))].get(mode="clip")
    angle = order * phi
    out = lax.complex(value * jnp.cos(angle), value * jnp.sin(angle))
    return jnp.where(m < 0, (-1.0) ** order * jnp.conjugate(out), out)
