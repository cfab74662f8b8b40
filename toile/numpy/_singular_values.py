"""Singular values: which of them count as 0, and the derivative of the pseudoinverse.

Imports what linalg imports, and is imported by it.
"""

from __future__ import annotations

import functools
from typing import Any

from toile import lax
from toile import numpy as jnp
from toile.engine.arrays import Array
from toile.numpy import _helpers as h


def cutoff(a: Array, rtol: Any, largest: Array) -> Array:
    """The product of rtol, by default 10 max(m, n) eps, and the largest singular value."""
    if rtol is None:
        rtol = 10.0 * max(a.shape[-2:]) * float(h.dtypes.finfo(a.dtype).eps)
    rtol = lax.convert_element_type(h.arr(rtol), largest.dtype)
    if rtol.ndim:
        rtol = lax.expand_dims(rtol, (rtol.ndim,))
    return jnp.multiply(rtol, largest)


def inverse_values(s: Array, keep: Array) -> Array:
    """Compute 1 / s for the singular values to keep, and 0 for the others."""
    return jnp.where(keep, 1 / jnp.where(keep, s, 1), 0)


def pinv_tangent(p: Array, a: Array, da: Array) -> Array:
    """The derivative of the pseudoinverse p of `a`, if the rank of `a` is constant.

    Unlike the derivative of the SVD, it exists if singular values are equal:
    dp = p p* da* (1 - a p) + (1 - p a) da* p* p - p da p."""
    ph, dah = (jnp.conj(jnp.swapaxes(x, -1, -2)) for x in (p, da))
    product = functools.partial(_product, a.shape[-1] > a.shape[-2])
    left, right = product(p, ph, dah), product(dah, ph, p)
    return left - product(left, a, p) + right - product(p, a, right) - product(p, da, p)


def _product(from_right: bool, x: Array, y: Array, z: Array) -> Array:
    """The product of three matrices, in an order that makes no matrix larger than they are."""
    matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    return matmul(x, matmul(y, z)) if from_right else matmul(matmul(x, y), z)
