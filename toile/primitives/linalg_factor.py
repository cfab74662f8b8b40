"""Factorizations: Cholesky, LU, QR, and the Householder reflectors of QR.

Derivatives are those of JAX: Cholesky after Murray, LU after De Hoog, Anderssen and Lukas, QR after
Walter and Lehmann with the completion for full matrices. This module may import the engine,
primitives.linalg, linalg_solve, the primitives below them and the array kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.records import dataclass
from toile.primitives.arrays import lapack
from toile.primitives.complexes import complex_, imag, real
from toile.primitives.elementwise import convert, div
from toile.primitives.families import add, full_like, mul, sub, zeros
from toile.primitives.linalg import (
    MatrixOperation,
    Shape,
    adjoint,
    eye,
    matmul,
    take,
    tril,
    triu,
)
from toile.primitives.linalg_solve import TriangularSolve, lu_solve
from toile.primitives.shapes import Concatenate, pad, slice_axis

Specs = Sequence[tuple[Shape, Any]]
_INT = np.dtype(np.int32)


class Cholesky(MatrixOperation):
    """The lower triangular L with A = L Lᴴ; only the lower triangle of A is read."""

    kernel_family = "matrices.cholesky"

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        self.square(shapes[0])
        return [(shapes[0], dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.cholesky(*xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # dL = L Φ(L⁻¹ dA L⁻ᴴ), where Φ takes the lower triangle and halves the diagonal.
        # Since A's upper triangle is not read, that of dA mirrors the lower one.
        (a,), (da,) = primals, tangents
        l, strict = self(a), tril(da, -1)
        half = complex_(tril(real(da)), tril(imag(da), -1)) if _complex(da) else tril(da)
        da = add(half, adjoint(strict))
        right = TriangularSolve(lower=True, transpose_a=True, conjugate_a=_complex(l))
        inner = TriangularSolve(left_side=True, lower=True)(l, right(l, da))
        weights = add(eye(l.shape, l.dtype), full_like(l, 1))
        return l, matmul(l, div(tril(inner), weights))


def _complex(x: Any) -> bool:
    return x.dtype.kind == "c"


class CholeskyUpdate(MatrixOperation):
    """The upper triangular factor of RᵀR + wwᵀ."""

    ranks = (2, 1)

    def check_dtypes(self, avals: Sequence[Aval]) -> None:
        if any(a.dtype != avals[0].dtype or a.dtype.kind != "f" for a in avals):
            raise shape_error(self.name, "float operands of equal dtypes", avals)

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        r, w = shapes
        if r[0] != r[1] or w[0] != r[0]:
            raise self.unfit("a square matrix and a vector of its size", r, w)
        return [(r, dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.cholesky_update(*xs)


# --------------------------------------------------------------------------------------------- LU


class Lu(MatrixOperation):
    """Packed factors of P A = L U, the row swaps, and P as a row order."""

    kernel_family = "matrices.lu"
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        m, n = shapes[0]
        return [((m, n), dtype), ((min(m, n),), _INT), ((m,), _INT)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.lu(*xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # With M = L⁻¹ P dA U⁻¹: dL = L tril(M, -1) and dU = triu(M) U.
        (a,), (da,) = primals, tangents
        packed, pivots, order = self(a)
        *_, m, n = a.shape
        k = min(m, n)
        l = _padded(tril(slice_axis(packed, 0, k, a.ndim - 1), -1), -1, m - k)
        l = add(l, eye(l.shape, l.dtype))
        u = _padded(triu(slice_axis(packed, 0, k, a.ndim - 2)), -2, n - k)
        u = add(u, triu_tail(u, k))
        inner = TriangularSolve(left_side=True, lower=True, unit_diagonal=True)(
            l, take(da, order, -2)
        )
        inner = TriangularSolve()(u, inner)
        dpacked = add(matmul(l, tril(inner, -1)), matmul(triu(inner), u))
        return [packed, pivots, order], [dpacked, Zero(pivots), Zero(order)]


def _padded(x: Any, axis: int, extra: int) -> Any:
    """Append zeros to one axis."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (0, extra, 0)
    return pad(x, full_like(x, 0), tuple(config))


def triu_tail(x: Any, k: int) -> Any:
    """The identity without its first k ones, for each matrix."""
    n = x.shape[-1]
    block = eye((*x.shape[:-2], n - k, n - k), x.dtype)
    return pad(block, full_like(block, 0), (*[(0, 0, 0)] * (x.ndim - 2), (k, 0, 0), (k, 0, 0)))


@dataclass(frozen=True)
class LuPivotsToPermutation(MatrixOperation):
    """The order of rows after a sequence of row swaps."""

    permutation_size: int
    kernel_family = "matrices.order"
    ranks = (1,)

    def check_dtypes(self, avals: Sequence[Aval]) -> None:
        if avals[0].dtype != np.int32:
            raise shape_error(self.name, "row swaps of dtype int32", avals)

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        if self.permutation_size < shapes[0][0]:
            raise self.unfit(f"at most {self.permutation_size} row swaps", shapes[0])
        return [((self.permutation_size,), _INT)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return (lapack.permutation(xs[0], self.permutation_size),)


# --------------------------------------------------------------------------------------------- QR


class Geqrf(MatrixOperation):
    """R in the upper triangle, Householder vectors below it, and the reflectors' factors."""

    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        return [(shapes[0], dtype), ((min(shapes[0]),), dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.geqrf(*xs)


class HouseholderProduct(MatrixOperation):
    """The first columns of the product of Householder reflectors."""

    ranks = (2, 1)

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        (m, n), (k,) = shapes
        if m < n or k > n:
            raise self.unfit("a matrix with at least as many rows as columns, and at most as many "
                             "factors as columns", *shapes)
        return [((m, n), dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.householder_product(*xs)


@dataclass(frozen=True)
class Ormqr(MatrixOperation):
    """Q C or C Q (or with Qᴴ) for the Q of `Geqrf`, which is not formed."""

    left: bool = True
    adjoint: bool = False
    ranks = (2, 1, 2)

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        a, _, c = shapes
        if c[0 if self.left else 1] != a[0]:
            side = "rows" if self.left else "columns"
            raise self.unfit(f"a matrix c with as many {side} as the reflectors have rows", a, c)
        return [(c, dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.ormqr(self.left, self.adjoint, *xs)


@dataclass(frozen=True)
class Qr(MatrixOperation):
    """A = Q R, or A[:, p] = Q R with pivoting; `full_matrices` makes Q square."""

    pivoting: bool = False
    full_matrices: bool = True
    kernel_family = "matrices.qr"
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        m, n = shapes[0]
        k = m if self.full_matrices else min(m, n)
        order = [((n,), _INT)] if self.pivoting else []
        return [((m, k), dtype), ((k, n), dtype), *order]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.qr(self.full_matrices, self.pivoting, *xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (x,), (dx,) = primals, tangents
        q, r, *order = self(x)
        if order:
            x, dx = take(x, order[0], -1), take(dx, order[0], -1)
        *_, m, n = x.shape
        columns = x.ndim - 1
        if m < n:
            dq, dr = _thin_tangent(q, slice_axis(r, 0, m, columns), slice_axis(dx, 0, m, columns))
            # R = [R₁ R₂] with R₂ = Qᴴ X₂.
            tail = add(matmul(adjoint(dq), slice_axis(x, m, n, columns)),
                       matmul(adjoint(q), slice_axis(dx, m, n, columns)))
            dr = Concatenate(columns)(dr, tail)
        else:
            thin_q, thin_r = slice_axis(q, 0, n, columns), slice_axis(r, 0, n, columns - 1)
            dq, dr = _thin_tangent(thin_q, thin_r, dx)
            if self.full_matrices and m > n:
                dq = Concatenate(columns)(dq, _complement_tangent(q, dq, n))
                rest = zeros(Aval((*r.shape[:-2], m - n, n), r.dtype))
                dr = Concatenate(columns - 1)(dr, rest)
        return [q, r, *order], [dq, dr, *[Zero(p) for p in order]]


def _thin_tangent(q: Any, r: Any, dx: Any) -> tuple[Any, Any]:
    """Tangents of Q (m x n) and R (n x n) for m >= n.

    With M = Qᴴ dX R⁻¹ and the skew Ω of M's lower triangle: dR = (M - Ω) R and
    dQ = Q (Ω - M) + dX R⁻¹; a complex M keeps its imaginary diagonal in Ω."""
    scaled = TriangularSolve()(r, dx)
    m = matmul(adjoint(q), scaled)
    low = tril(m, -1)
    skew = sub(low, adjoint(low))
    if _complex(m):
        skew = add(skew, mul(eye(m.shape, m.dtype), sub(m, convert(real(m), m.dtype))))
    dq = add(matmul(q, sub(skew, m)), scaled)
    return dq, matmul(sub(m, skew), r)


def _complement_tangent(q: Any, dq: Any, n: int) -> Any:
    """Tangent of the last columns of a square Q from that of its first n (arXiv 2409.13374).

    With Q's first columns split into Q₁ (n rows) and Q₂ and Z = Q₂ (Q₁ - I)⁻¹:
    dQ₊ = dQ Zᴴ - (Q + Q₊ Z)(dQ₂ - Z dQ₁)ᴴ."""
    rows, columns = q.ndim - 2, q.ndim - 1
    m = q.shape[-1]
    first, rest = slice_axis(q, 0, n, columns), slice_axis(q, n, m, columns)
    top, bottom = slice_axis(first, 0, n, rows), slice_axis(first, n, m, rows)
    dtop, dbottom = slice_axis(dq, 0, n, rows), slice_axis(dq, n, m, rows)
    packed, _, order = Lu()(sub(top, eye(top.shape, top.dtype)))
    zh = lu_solve(packed, order, adjoint(bottom), trans=2)
    z = adjoint(zh)
    left = add(first, matmul(rest, z))
    return sub(matmul(dq, zh), matmul(left, adjoint(sub(dbottom, matmul(z, dtop)))))
