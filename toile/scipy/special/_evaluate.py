"""Evaluation of approximations: polynomials, quotients of polynomials, and series.

Coefficients are rounded to the dtype of the argument, so that results are not weakly typed. Loops
run over whole arrays. An element that has converged no longer changes while the loop continues for
the others.
"""

from __future__ import annotations

import numpy as np

from toile import lax
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here


def poly(coefs, x):
    """Evaluate the polynomial with `coefs`, highest power first, by Horner's rule."""
    coefs = np.array(coefs, dtype=x.dtype)
    y = jnp.full(x.shape, coefs[0])
    for c in coefs[1:]:
        y = y * x + c
    return y


def quotient(pair, x):
    """Evaluate the quotient of two polynomials at `x`."""
    return poly(pair[0], x) / poly(pair[1], x)


def const(x, value):
    """Convert `value` to a NumPy scalar of the dtype of `x`, which is not weakly typed."""
    return np.dtype(x.dtype).type(value)


def eps(x):
    """Return the machine epsilon of the dtype of `x`."""
    return float(jnp.finfo(x.dtype).eps)


def float_array(x: ArrayLike) -> Array:
    """Convert `x` to an array, which must have dtype float32 or float64."""
    out = jnp.asarray(x)
    if out.dtype not in (np.float32, np.float64):
        raise TypeError(f"x.dtype={out.dtype} is not supported, see docstring for supported "
                        f"types.{here()}")
    return out


def series(start, term, ratio, weight=None, limit=250, needed=True):
    """Compute `start + Σ weight(k)·term(k)`, where `term(k+1) = term(k)·ratio(k)`.

    The sum starts with `k = 1`, and the argument `term` is `term(1)`. The summation for an element
    ends when a term is too small to change the sum, or after `limit` terms. Elements where `needed`
    is False are not summed.
    """
    precision = eps(term)
    start = jnp.broadcast_to(start, term.shape).astype(term.dtype)

    def active(state):
        total, k, term = state
        return needed & (k < limit) & (jnp.abs(term) > precision * jnp.abs(total))

    def body(state):
        total, k, term = state
        go = active(state)
        added = term if weight is None else term * weight(k)
        return (jnp.where(go, total + added, total), k + 1, jnp.where(go, term * ratio(k), term))

    init = (start, jnp.ones((), term.dtype), term)
    return lax.while_loop(lambda state: jnp.any(active(state)), body, init)[0]
