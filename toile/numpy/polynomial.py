"""Polynomials as arrays of coefficients, highest power first."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.numpy import _helpers as h
from toile.numpy._helpers import arr, check, promote, promote_inexact


def _coefficients(name: str, *ps: Any) -> list[Array]:
    """Convert coefficients to rank-1 arrays of one inexact dtype."""
    check(name, *ps)
    found = promote_inexact(*(jnp.atleast_1d(arr(p)) for p in ps))
    for p in found:
        if p.ndim != 1:
            raise ValueError(f"{name}: needed coefficients of rank 1, got shape {p.shape}{here()}")
    return found


def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """Evaluate a polynomial by Horner's rule.

    Args:
        p: coefficients along the first axis, highest power first.
        x: points at which to evaluate the polynomial. They are broadcast against the other axes of
            `p`.
        unroll: number of iterations to unroll in the loop over the coefficients.

    Returns:
        An array in the dtype that `p` and `x` promote to.

    >>> jnp.polyval(jnp.array([1, 2, 3]), 2)
    Array(11, dtype=int32)
    """
    p, x = promote(p, x, name="polyval")
    shape = jnp.broadcast_shapes(p.shape[1:], x.shape)
    y = lax.full(shape, 0, p.dtype)
    if p.shape[0] <= max(unroll, 16):
        for i in range(p.shape[0]):
            y = y * x + p[i]
        return y

    def step(carry, coefficient):
        return carry * x + coefficient, None

    return lax.scan(step, y, p, unroll=unroll)[0]


def _aligned(a, b):
    """Two polynomials, or arrays of them along the other axes, with equally many coefficients."""
    n = max(a.shape[0], b.shape[0])

    def grow(p):
        sides = [(n - p.shape[0], 0, 0), *[(0, 0, 0)] * (p.ndim - 1)]
        return lax.pad(p, lax.full((), 0, p.dtype), sides)

    if a.shape[1:] != b.shape[1:]:
        raise ValueError(
            "polynomials: needed arrays whose shapes differ only in the number of coefficients, "
            f"along axis 0, got {a.aval.str_short()} and {b.aval.str_short()}{here()}"
        )
    return grow(a), grow(b)


def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Add two polynomials.

    Args:
        a1, a2: coefficients, highest power first.

    Returns:
        The coefficients of the sum, highest power first.

    >>> jnp.polyadd(jnp.array([1, 2]), jnp.array([5]))
    Array([1, 7], dtype=int32)
    """
    return jnp.add(*_aligned(*promote(a1, a2, name="polyadd")))


def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Subtract one polynomial from another.

    Args:
        a1: coefficients, highest power first.
        a2: coefficients of the polynomial to subtract.

    Returns:
        The coefficients of the difference, highest power first.
    """
    return jnp.subtract(*_aligned(*promote(a1, a2, name="polysub")))


def _trim_leading(p: Array) -> Array:
    """Remove leading zeros of `p`, which must be concrete, but keep at least one coefficient."""
    values = h.concrete(p, "polynomial coefficients (pass trim_leading_zeros=False)")
    used = np.nonzero(values)[0]
    return p[int(used[0]):] if used.size else p[-1:]


def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """Multiply two polynomials.

    Args:
        a1, a2: coefficients, highest power first.
        trim_leading_zeros: whether to remove leading zeros of the operands first, as NumPy does;
            True is not supported under `jit`.

    Returns:
        The coefficients of the product as floats, highest power first.

    >>> jnp.polymul(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([1., 5., 6.], dtype=float32)
    """
    a1, a2 = _coefficients("polymul", a1, a2)
    if trim_leading_zeros and (a1.size > 1 or a2.size > 1):
        a1, a2 = _trim_leading(a1), _trim_leading(a2)
    left = a1 if a1.size else lax.full((1,), 0, a2.dtype)
    right = a2 if a2.size else lax.full((1,), 0, a1.dtype)
    return jnp.convolve(left, right, "full")


def polydiv(u: ArrayLike, v: ArrayLike, *,
            trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Divide one polynomial by another.

    Args:
        u: coefficients of the dividend, highest power first.
        v: coefficients of the divisor; the first must not be zero.
        trim_leading_zeros: whether to remove leading zeros of the remainder, as NumPy does; True is
            not supported under `jit`.

    Returns:
        A tuple of the coefficients of the quotient and of the remainder. The remainder has the same
        number of coefficients as `u` unless its leading zeros are removed.

    >>> jnp.polydiv(jnp.array([1.0, 5.0, 6.0]), jnp.array([1.0, 2.0]))
    (Array([1., 3.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    u, v = _coefficients("polydiv", u, v)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    q = []
    for k in range(max(m - n + 1, 0)):
        d = u[k] / v[0]
        q.append(d)
        u = u.at[k:k + n + 1].add(-(d * v))
    quotient = jnp.stack(q) if q else lax.full((1,), 0, u.dtype)
    if trim_leading_zeros:
        u = _trim_leading(u)
    return quotient, u


def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Differentiate a polynomial.

    Args:
        p: coefficients, highest power first.
        m: number of times to differentiate; it cannot be traced.

    Returns:
        The coefficients of the derivative as floats, highest power first. If `m` is at least the
        number of coefficients of `p`, the result is empty.

    >>> jnp.polyder(jnp.array([1, 2, 3]))
    Array([2., 2.], dtype=float32)
    """
    p, = _coefficients("polyder", p)
    m = h.static_int(m, "'m' argument of jnp.polyder")
    if m < 0:
        raise ValueError("Order of derivative must be positive" + here())
    if m == 0:
        return p
    n = p.shape[0]
    if m >= n:
        return lax.full((0,), 0, p.dtype)
    powers = np.arange(n - 1, m - 1, -1)[:, None] - np.arange(m)
    return jnp.multiply(p[:n - m], jnp.asarray(powers.prod(1), dtype=p.dtype))


def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """Integrate a polynomial.

    Args:
        p: coefficients, highest power first.
        m: number of times to integrate; it cannot be traced.
        k: constants of integration, either one for each integration, in order, or one for all; 0 by
            default.

    Returns:
        The coefficients of the integral as floats, highest power first.

    >>> jnp.polyint(jnp.array([2.0, 2.0]), k=5)
    Array([1., 2., 5.], dtype=float32)
    """
    m = h.static_int(m, "'m' argument of jnp.polyint")
    k = 0 if k is None else k
    p, k = promote_inexact(*h.as_arrays("polyint", p, k))
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)" + here())
    k = jnp.atleast_1d(k)
    if k.shape == (1,):
        k = h.broadcast_to(k, (m,))
    if k.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m." + here())
    if m == 0:
        return p
    whole = jnp.concatenate([p, k])
    n = whole.shape[0]
    # coefficient i stands for x**(n - 1 - i) and has been integrated min(m, that power) times
    power = np.arange(n - 1, -1, -1)
    times = np.minimum(m, power)
    scale = np.array([np.prod(np.arange(q - t + 1, q + 1, dtype=np.float64))
                      for q, t in zip(power, times)])
    # constants enter one integration after another, so k[j] is divided by (m - 1 - j)!
    return jnp.true_divide(whole, jnp.asarray(scale, dtype=whole.dtype))


def poly(seq_of_zeros: ArrayLike) -> Array:
    """Compute the coefficients of a polynomial from its roots.

    Args:
        seq_of_zeros: roots, as a one-dimensional array; or a square matrix, whose eigenvalues are
            the roots.

    Returns:
        The coefficients, highest power first; the first is 1. If the argument is a matrix, the
        coefficients are complex.

    >>> jnp.poly(jnp.array([1, 2]))
    Array([ 1., -3.,  2.], dtype=float32)
    """
    z, = promote_inexact(seq_of_zeros, name="poly")
    z = jnp.atleast_1d(z)
    if z.ndim == 2 and z.shape[0] == z.shape[1] and z.shape[0]:
        z = jnp.linalg.eigvals(z)
    if z.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array." + here())
    out = lax.full((1,), 1, z.dtype)
    for i in range(z.shape[0]):
        factor = lax.concatenate([lax.full((1,), 1, z.dtype), lax.reshape(lax.neg(z[i]), (1,))], 0)
        out = jnp.convolve(out, factor, "full")
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Find the roots of a polynomial, as the eigenvalues of its companion matrix.

    Args:
        p: coefficients, as a one-dimensional array with the highest power first.
        strip_zeros: whether to remove leading and trailing zeros first; True is not supported for
            traced values. If False, the result has one root for each power; after the roots,
            there is one NaN for each leading zero.

    Returns:
        A complex one-dimensional array.

    >>> jnp.roots(jnp.array([1.0, 0.0, 0.0]))
    Array([0.+0.j, 0.+0.j], dtype=complex64)
    """
    p, = promote_inexact(*h.as_arrays("roots", p))
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array." + here())
    dtype = h.dtypes.to_complex_dtype(p.dtype)
    if p.size < 2:
        return lax.full((0,), 0, dtype)
    if not strip_zeros:
        return _padded_roots(p, dtype)
    values = h.concrete(p, "roots of a traced polynomial (pass strip_zeros=False)")
    used = np.nonzero(values)[0]
    if not used.size:
        return lax.full((0,), 0, dtype)
    trailing = p.size - 1 - int(used[-1])
    p = p[int(used[0]):int(used[-1]) + 1]
    out = _companion_roots(p, dtype) if p.size > 1 else lax.full((0,), 0, dtype)
    return jnp.concatenate([out, lax.full((trailing,), 0, dtype)]) if trailing else out


def _padded_roots(p, dtype):
    """The roots of a polynomial that may be traced, then one NaN for each leading zero."""
    leading = jnp.where(jnp.any(p != 0), jnp.argmax(p != 0), p.size)
    p = jnp.where(leading == p.size, lax.full_like(p, 1), p)
    # Leading zeros at the end are roots that are 0, which a stable sort puts last.
    found = _companion_roots(jnp.roll(p, -leading), dtype)
    found = found[jnp.argsort(found == 0, stable=True)]
    kept = jnp.arange(found.size) < found.size - leading
    return jnp.where(kept, found, complex(np.nan, np.nan))


def _companion_roots(p, dtype):
    n = p.shape[0] - 1
    top = lax.reshape(lax.neg(p[1:] / p[0]), (1, n))
    below = jnp.eye(n - 1, n, dtype=p.dtype)
    matrix = lax.concatenate([top, below], 0) if n > 1 else top
    return lax.convert_element_type(jnp.linalg.eigvals(matrix), dtype)


def _check_points(x, y, deg):
    if deg < 0:
        raise ValueError("expected deg >= 0" + here())
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x" + here())
    if x.size == 0:
        raise TypeError("expected non-empty vector for x" + here())
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y" + here())
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length: needed one y for each x, got "
                        f"{x.shape[0]} and {y.shape[0]} (slice the longer one){here()}")


@overload
def polyfit(x: ArrayLike, y: ArrayLike, deg: int, rcond: float | None = None,
            full: Literal[False] = False, w: ArrayLike | None = None,
            cov: Literal[False] = False) -> Array: ...
@overload
def polyfit(x: ArrayLike, y: ArrayLike, deg: int, rcond: float | None = None, full: bool = False,
            w: ArrayLike | None = None, cov: bool | Literal["unscaled"] = False) -> Any: ...
def polyfit(x: ArrayLike, y: ArrayLike, deg: int, rcond: float | None = None, full: bool = False,
            w: ArrayLike | None = None,
            cov: bool | Literal["unscaled"] = False) -> Array | tuple[Array, ...]:
    """Fit a polynomial to points by least squares.

    Args:
        x: positions of the points, as a one-dimensional array.
        y: values at the points: a one-dimensional array, or a matrix, in which case one polynomial
            is fitted to each column.
        deg: degree of the polynomial; it cannot be traced.
        rcond: relative tolerance; singular values less than `rcond` times the largest singular
            value count as 0. The default is the number of points times the machine epsilon of the
            dtype.
        full: whether to also return the other results of `linalg.lstsq`.
        w: weights that multiply the errors before they are squared; 1 by default.
        cov: whether to also return the covariance matrix of the coefficients. Pass "unscaled" if
            the weights are the inverse standard deviations of the values.

    Returns:
        The coefficients, highest power first. If `full` is True, a tuple of the coefficients, the
        residuals, the rank, the singular values and `rcond`. If `cov` is set, a tuple of the
        coefficients and the covariance matrix.

    >>> x = jnp.array([-1.0, 0.0, 1.0])
    >>> jnp.polyfit(x, 2 * x + 1, 1).round(3)
    Array([2., 1.], dtype=float32)
    """
    if w is None:
        check("polyfit", x, y)
    else:
        check("polyfit", x, y, w)
    x, y = promote_inexact(x, y)
    deg = h.static_int(deg, "'deg' argument of jnp.polyfit")
    _check_points(x, y, deg)
    if rcond is None:
        rcond = x.shape[0] * float(h.dtypes.finfo(x.dtype).eps)
    left, right = jnp.vander(x, deg + 1), y
    if w is not None:
        w, = promote_inexact(arr(w))
        if w.ndim != 1:
            raise TypeError("expected a 1-d array for weights" + here())
        if w.shape[0] != y.shape[0]:
            raise TypeError("expected w and y to have the same length" + here())
        left = left * lax.expand_dims(w, (1,))
        right = right * (w if y.ndim == 1 else lax.expand_dims(w, (1,)))
    scale = jnp.sqrt(jnp.sum(left * left, axis=0))
    left = left / scale[None]
    c, residuals, rank, s = jnp.linalg.lstsq(left, right, rcond)
    c = c / (scale if y.ndim == 1 else scale[:, None])
    if full:
        return c, residuals, rank, s, arr(rcond)
    if not cov:
        return c
    base = jnp.linalg.inv(jnp.dot(jnp.transpose(left), left))
    base = base / jnp.outer(scale, scale)
    if cov == "unscaled":
        factor: Any = 1
    else:
        if x.shape[0] <= deg + 1:
            raise ValueError("the number of data points must exceed order to scale the covariance "
                             "matrix" + here())
        factor = residuals / (x.shape[0] - (deg + 1))
        factor = factor[0] if y.ndim == 1 else factor[None, None]
    return c, (base if y.ndim == 1 else lax.expand_dims(base, (2,))) * factor
