"""Eigenvalues, singular values, and the reductions that lead to them.

Derivatives are JAX's: first-order perturbation theory, valid where eigenvalues (or singular values)
are distinct; vectors are fixed by LAPACK's normalization. This module may import the engine,
primitives.linalg, linalg_solve, the primitives below them and the array kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.arrays import lapack
from toile.primitives.bits import eq
from toile.primitives.complexes import complex_, imag, real
from toile.primitives.elementwise import abs_, convert, div, select
from toile.primitives.families import add, full_like, mul, neg, reduce_sum, sub, zeros
from toile.primitives.linalg import (
    MatrixOperation,
    Shape,
    adjoint,
    along_columns,
    along_rows,
    conjugate,
    diagonal,
    eye,
    inverse_gaps,
    matmul,
    swapped,
    symmetrize,
)
from toile.primitives.linalg_solve import solve
from toile.primitives.reductions import ReduceMax, ReduceMin
from toile.primitives.shapes import iota

Specs = Sequence[tuple[Shape, Any]]


def _real(dtype: Any) -> np.dtype:
    return dtypes.dtype_to_real(dtype)


def _real_part(x: Any) -> Any:
    return real(x) if dtypes.kind(x.dtype) == "c" else x


# -------------------------------------------------------------------------- Hermitian eigenproblem


@dataclass(frozen=True)
class Eigh(MatrixOperation):
    """Eigenvectors (columns) and ascending eigenvalues of a Hermitian matrix.

    One triangle is read; `subset_by_index` keeps eigenvalues start ... stop - 1."""

    lower: bool = True
    sort_eigenvalues: bool = True
    subset_by_index: tuple[int, int] | None = None
    kernel_family = "matrices.eigh"
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        self.square(shapes[0])
        n = shapes[0][0]
        start, stop = self.subset_by_index or (0, n)
        if not 0 <= start <= stop <= n:
            raise self.unfit(f"a matrix with eigenvalues {start} ... {stop - 1}", shapes[0])
        return [((n, stop - start), dtype), ((stop - start,), _real(dtype))]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        found = lapack.eigh(self.lower, *xs)
        if found is None or self.subset_by_index is None:
            return found
        kept = slice(*self.subset_by_index)
        return found[0][:, kept], found[1][kept]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # With M = Vᴴ dA V: dw = diag(M) and dV = V (F ∘ M), F = 1 / (wⱼ - wᵢ) off the diagonal.
        (a,), (da,) = primals, tangents
        if self.subset_by_index not in (None, (0, a.shape[-1])):
            raise NotImplementedError(
                "Derivatives not defined for partial eigen decomposition." + here()
            )
        v, w = self(symmetrize(a))
        m = matmul(matmul(adjoint(v), da), v)
        f = inverse_gaps(convert(w, v.dtype), v.shape)
        return [v, w], [matmul(v, mul(f, m)), diagonal(_real_part(m))]


@dataclass(frozen=True)
class Tridiagonal(MatrixOperation):
    """A Hermitian matrix in tridiagonal form: (a with the reflectors, d, e, their factors)."""

    lower: bool = True
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        self.square(shapes[0])
        n = shapes[0][0]
        if n == 0:
            raise self.unfit("a matrix with elements", shapes[0])
        outer = ((n - 1,), _real(dtype))
        return [(shapes[0], dtype), ((n,), _real(dtype)), outer, ((n - 1,), dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.tridiagonal(self.lower, *xs)


# ---------------------------------------------------------------------------- general eigenproblem


@dataclass(frozen=True)
class Eig(MatrixOperation):
    """Eigenvalues, then left and right eigenvectors if requested, of a general matrix."""

    compute_left_eigenvectors: bool = True
    compute_right_eigenvectors: bool = True
    enable_eigvec_derivs: bool = False
    kernel_family = "eigen"
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        self.square(shapes[0])
        count = self.compute_left_eigenvectors + self.compute_right_eigenvectors
        dtype = dtypes.to_complex_dtype(dtype)
        return [(shapes[0][:1], dtype), *[(shapes[0], dtype)] * count]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.eig(self.compute_left_eigenvectors, self.compute_right_eigenvectors, *xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (a,), (da,) = primals, tangents
        left, right = self.compute_left_eigenvectors, self.compute_right_eigenvectors
        if (left or right) and not self.enable_eigvec_derivs:
            raise NotImplementedError(
                "eig: derivatives of non-symmetric eigenvectors hold only under assumptions on the "
                "input that cannot be checked: distinct eigenvalues, and no two components of an "
                "eigenvector tied for the largest magnitude (pass enable_eigvec_derivs=True to "
                "lax.linalg.eig to opt in, or use the eigenvalues only)" + here()
            )
        w, *vectors = replace(self, compute_right_eigenvectors=True)(a)
        da = convert(da, w.dtype)
        if not (left or right):  # dw = diag(V⁻¹ dA V)
            v = vectors[0]
            return [w], [reduce_sum(mul(solve(v, da), swapped(v)), (v.ndim - 1,))]
        dw, dv = _eigenvector_tangent(w, vectors[-1], da)
        outs, douts = [w], [dw]
        if left:
            _, dleft = _eigenvector_tangent(conjugate(w), vectors[0], adjoint(da))
            outs.append(vectors[0])
            douts.append(dleft)
        if right:
            outs.append(vectors[-1])
            douts.append(dv)
        return outs, douts


def _eigenvector_tangent(w: Any, v: Any, da: Any) -> tuple[Any, Any]:
    """Tangents of eigenvalues and of eigenvectors of unit norm with a real largest component.

    A v = w v leaves dvⱼ = uⱼ + cⱼ vⱼ with cⱼ free; the normalization fixes Re c by vᴴ dv = 0 (real
    part) and Im c by keeping the component k of largest magnitude real."""
    m = matmul(solve(v, da), v)
    u = matmul(v, mul(inverse_gaps(w, v.shape), m))
    largest = _first_largest(v)
    rows = (v.ndim - 2,)
    nothing = zeros(Aval(v.shape, v.dtype))
    along = _real_part(reduce_sum(mul(conjugate(v), u), rows))
    turned = imag(reduce_sum(select(largest, u, nothing), rows))
    size = real(reduce_sum(select(largest, v, nothing), rows))
    c = complex_(neg(along), neg(div(turned, size)))
    return diagonal(m), add(u, mul(v, along_rows(c, v.shape)))


def _first_largest(v: Any) -> Any:
    """A mask of the (first) element of largest magnitude in each column."""
    rows = v.ndim - 2
    size = abs_(v)
    hit = eq(size, along_rows(ReduceMax((rows,))(size), v.shape))
    index = iota(np.int32, v.shape, rows)
    beyond = add(zeros(Aval(v.shape, index.dtype)), full_like(index, v.shape[rows]))
    first = ReduceMin((rows,))(select(hit, index, beyond))
    return eq(index, along_rows(first, v.shape))


@dataclass(frozen=True)
class Schur(MatrixOperation):
    """The triangular form T and, if requested, the unitary Q with A = Q T Qᴴ."""

    compute_schur_vectors: bool = True
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        self.square(shapes[0])
        return [(shapes[0], dtype)] * (1 + self.compute_schur_vectors)

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.schur(self.compute_schur_vectors, *xs)


class Hessenberg(MatrixOperation):
    """The upper Hessenberg form with its reflectors below, and their factors."""

    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        self.square(shapes[0])
        n = shapes[0][0]
        if n == 0:
            raise self.unfit("a matrix with elements", shapes[0])
        return [(shapes[0], dtype), ((n - 1,), dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.hessenberg(*xs)


# --------------------------------------------------------------------------------- singular values


@dataclass(frozen=True)
class Svd(MatrixOperation):
    """Descending singular values, then U and Vᴴ if requested.

    `algorithm` is "qr" for QR iterations, anything else for divide and conquer."""

    full_matrices: bool = True
    compute_uv: bool = True
    subset_by_index: tuple[int, int] | None = None
    algorithm: str = "default"
    kernel_family = "matrices.svd"
    multiple = True

    def specs(self, dtype: Any, *shapes: Shape) -> Specs:
        m, n = shapes[0]
        rank = min(m, n)
        start, stop = self.subset_by_index or (0, rank)
        if self.full_matrices and (start, stop) != (0, rank):
            raise ValueError("full_matrices and subset_by_index cannot both be set" + here())
        if not 0 <= start <= stop:
            raise self.unfit(f"a range of singular values, here ({start}, {stop})", shapes[0])
        k = min(stop, rank) - min(start, rank)
        if not self.compute_uv:
            return [((k,), _real(dtype))]
        u, v = ((m, m), (n, n)) if self.full_matrices else ((m, k), (k, n))
        return [((k,), _real(dtype)), (u, dtype), (v, dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        found = lapack.svd(self.full_matrices, self.compute_uv, self.algorithm == "qr", *xs)
        if found is None or self.subset_by_index is None or self.full_matrices:
            return found
        kept = slice(*self.subset_by_index)
        s, *vectors = found
        return (s[kept], vectors[0][:, kept], vectors[1][kept]) if vectors else (s[kept],)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (a,), (da,) = primals, tangents
        *_, m, n = a.shape
        if self.compute_uv and self.full_matrices and m != n:
            raise NotImplementedError(
                "Singular value decomposition JVP not implemented for full matrices" + here()
            )
        s, u, vh = replace(self, full_matrices=False, compute_uv=True)(a)
        inner = matmul(matmul(adjoint(u), da), adjoint(vh))
        ds = diagonal(_real_part(inner))
        if not self.compute_uv:
            return [s], [ds]
        du, dv = _singular_vector_tangents(s, u, vh, da, inner)
        return [s, u, vh], [ds, du, adjoint(dv)]


def _singular_vector_tangents(s: Any, u: Any, vh: Any, da: Any, inner: Any) -> tuple[Any, Any]:
    """dU and dV from M = Uᴴ dA V.

    With F = 1 / (sⱼ² - sᵢ²) off the diagonal: dU = U (F ∘ (M S + S Mᴴ)) and dV = V (F ∘ (S M +
    Mᴴ S)), plus the part of dA outside the spaces that U and V span, plus the phase of the diagonal
    (which is free, and assigned to U)."""
    shape, dtype = inner.shape, u.dtype
    across, down = along_rows(s, shape), along_columns(s, shape)
    unit = eye(shape, s.dtype)
    one = full_like(s, 1)
    gaps = add(mul(add(across, down), sub(across, down)), unit)
    f = convert(sub(div(one, gaps), unit), dtype)
    by_column, by_row = mul(convert(across, dtype), inner), mul(convert(down, dtype), inner)
    null = convert(eq(s, full_like(s, 0)), s.dtype)
    inverse = sub(div(one, add(s, null)), null)
    phase = mul(unit, along_rows(inverse, shape))
    skew = mul(full_like(inner, 0.5), sub(inner, adjoint(inner)))
    inside = add(mul(f, add(by_column, adjoint(by_column))), mul(skew, convert(phase, dtype)))
    du = matmul(u, inside)
    dv = matmul(adjoint(vh), mul(f, add(by_row, adjoint(by_row))))
    m, n = u.shape[-2], vh.shape[-1]
    if m > n:
        du = add(du, _outside(matmul(da, adjoint(vh)), u, s))
    if n > m:
        dv = add(dv, _outside(matmul(adjoint(da), u), adjoint(vh), s))
    return du, dv


def _outside(x: Any, basis: Any, s: Any) -> Any:
    """The part of x outside the span of an orthonormal basis, each column divided by its s."""
    rest = sub(x, matmul(basis, matmul(adjoint(basis), x)))
    return div(rest, along_rows(convert(s, x.dtype), x.shape))
