"""Linear systems: triangular, tridiagonal, and general ones through their LU factors.

All are linear in the right-hand side, for which they have transposes, and differentiable with
respect to the matrix by d(A⁻¹B) = A⁻¹(dB - dA A⁻¹B). This module may import the engine,
primitives.linalg, the primitives below it and the array kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval, Zero
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim
from toile.engine.records import dataclass
from toile.engine.source import here
from toile.primitives.arrays import lapack
from toile.primitives.bits import eq
from toile.primitives.elementwise import select
from toile.primitives.families import (
    add,
    broadcast_in_dim,
    full_like,
    instantiate,
    move_axis,
    mul,
    neg,
    reduce_sum,
    reshape,
    zeros,
)
from toile.primitives.linalg import (
    MatrixOperation,
    Shape,
    along_columns,
    conjugate,
    matmul,
    swapped,
    take,
    tril,
    triu,
)
from toile.primitives.shapes import iota, pad


def _sum_of_cotangents(a: Any, b: Any) -> Any:
    """Sum of two cotangents, either of which may be a symbolic zero."""
    if a.__class__ is Zero:
        return b
    return a if b.__class__ is Zero else add(a, b)


def fold(op: MatrixOperation, xs: Sequence[Any], dim: int, axis: int) -> tuple[Any, int]:
    """vmap over right-hand sides only: they become columns (axis -1) or rows (-2) of a system."""
    *matrix, b = xs
    at = b.ndim + axis - 1  # right before the axis that the mapped one joins
    b = move_axis(b, dim, at)
    shape = b.shape
    flat = (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    return reshape(op(*matrix, reshape(b, flat)), shape), at


@dataclass(frozen=True)
class TriangularSolve(MatrixOperation):
    """X with op(A) X = B, or X op(A) = B, for a triangular A (the other triangle is not read)."""

    left_side: bool = False
    lower: bool = False
    transpose_a: bool = False
    conjugate_a: bool = False
    unit_diagonal: bool = False
    kernel_family = "matrices.triangular_solve"
    ranks = (2, 2)
    handles_zeros = True

    def specs(self, dtype: Any, *shapes: Shape) -> Sequence[tuple[Shape, Any]]:
        a, b = shapes
        self.square(a)
        if a[0] != b[0 if self.left_side else 1]:
            side = "rows" if self.left_side else "columns"
            raise self.unfit(f"a right-hand side with as many {side} as the matrix has", a, b)
        return [(b, dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.triangular_solve(
            self.left_side, self.lower, self.transpose_a, self.conjugate_a, self.unit_diagonal, *xs
        )

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        (a, b), (da, db) = primals, tangents
        x = self(a, b)
        terms = []
        if da.__class__ is not Zero:
            terms.append(self._matrix_tangent(a, x, da))
        if db.__class__ is not Zero:
            terms.append(self(a, db))
        return x, terms[0] if len(terms) == 1 else add(*terms)

    def _matrix_tangent(self, a: Any, x: Any, da: Any) -> Any:
        """-A⁻¹ dA X (or -X dA A⁻¹), in the order of products that costs less."""
        k = int(self.unit_diagonal)
        da = neg(tril(da, -k) if self.lower else triu(da, k))
        da = swapped(da) if self.transpose_a else da
        da = conjugate(da) if self.conjugate_a else da
        rows, columns = x.shape[-2:]
        if self.left_side:
            return self(a, matmul(da, x)) if rows > columns else matmul(self(a, da), x)
        return self(a, matmul(x, da)) if rows < columns else matmul(x, self(a, da))

    def transpose(self, ct: Any, a: Any, b: Any) -> Any:
        if type(a) is Aval:
            raise NotImplementedError(f"{self.name}: is not linear in the matrix{here()}")
        return None, replace(self, transpose_a=not self.transpose_a)(a, ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        if dims[0] is None and dims[1] is not None:
            return fold(self, xs, dims[1], -1 if self.left_side else -2)
        return super().vmap(axis, xs, dims)


@dataclass(frozen=True)
class TridiagonalSolve(MatrixOperation):
    """X with A X = B; A has the diagonals dl (below; dl[0] unread), d and du (du[-1] unread)."""

    perturb_singular: bool = False
    ranks = (1, 1, 1, 2)
    handles_zeros = True

    def specs(self, dtype: Any, *shapes: Shape) -> Sequence[tuple[Shape, Any]]:
        dl, d, du, b = shapes
        if dl != d or du != d or b[0] != d[0]:
            raise TypeError(
                f"{self.name}: needed three diagonals of one size and a right-hand side with as "
                f"many rows, got shapes {dl}, {d}, {du} and {b}{here()}"
            )
        return [(b, dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.tridiagonal_solve(self.perturb_singular, *xs)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        *matrix, _ = primals
        *dmatrix, db = tangents
        x = self(*primals)
        if any(t.__class__ is not Zero for t in dmatrix):
            dl, d, du = map(instantiate, dmatrix)
            moved = neg(tridiagonal_product(dl, d, du, x))
            db = _sum_of_cotangents(moved, db)
        return x, self(*matrix, db)

    def transpose(self, ct: Any, dl: Any, d: Any, du: Any, b: Any) -> Any:
        if any(type(v) is Aval for v in (dl, d, du)):
            raise NotImplementedError(f"{self.name}: is not linear in the matrix{here()}")
        out = self(shift(du, 1, -1), d, shift(dl, -1, -1), ct)  # Aᵀ swaps the outer diagonals
        return None, None, None, out

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        if dims[:3] == [None] * 3 and dims[3] is not None:
            return fold(self, xs, dims[3], -1)
        return super().vmap(axis, xs, dims)


def shift(x: Any, by: int, axis: int) -> Any:
    """Elements shifted along an axis, filled with zeros."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (by, -by, 0)
    return pad(x, full_like(x, 0), tuple(config))


def tridiagonal_product(dl: Any, d: Any, du: Any, x: Any) -> Any:
    """A x for a tridiagonal matrix."""
    parts = [
        mul(along_columns(v, x.shape), y)
        for v, y in ((dl, shift(x, 1, -2)), (d, x), (du, shift(x, -1, -2)))
    ]
    return add(add(parts[0], parts[1]), parts[2])


# ------------------------------------------------------------------------------- general systems


class LuFactors(MatrixOperation):
    """Packed LU factors and row swaps, treated as constants: `FactoredSolve` differentiates in
    A."""

    kernel_family = "matrices.lu"
    multiple = True
    handles_zeros = True

    def specs(self, dtype: Any, *shapes: Shape) -> Sequence[tuple[Shape, Any]]:
        self.square(shapes[0])
        return [(shapes[0], dtype), (shapes[0][:1], np.int32)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        found = lapack.lu(*xs)
        return None if found is None else found[:2]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs = self(*primals)
        return outs, [Zero(o) for o in outs]


@dataclass(frozen=True)
class FactoredSolve(MatrixOperation):
    """X with A X = B (or Aᵀ X = B), from A, its packed factors, its row swaps, and B."""

    transposed: bool = False
    kernel_family = "matrices.factored_solve"
    ranks = (2, 2, 1, 2)
    handles_zeros = True

    def check_dtypes(self, avals: Sequence[Aval]) -> None:
        a, packed, pivots, b = avals
        if pivots.dtype != np.int32:
            raise shape_error(self.name, "row swaps of dtype int32", avals)
        super().check_dtypes((a, packed, b))

    def specs(self, dtype: Any, *shapes: Shape) -> Sequence[tuple[Shape, Any]]:
        a, _, _, b = shapes
        self.square(a)
        if a[0] != b[0]:
            raise self.unfit("a right-hand side with as many rows as the matrix", a, b)
        return [(b, dtype)]

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        return lapack.lu_solve(self.transposed, *xs[1:])

    def used_operands(self, *avals: Aval) -> Sequence[int]:
        return 1, 2, 3  # the matrix itself is an operand for derivatives

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        a, packed, pivots, _ = primals
        da, db = tangents[0], tangents[3]
        x = self(*primals)
        if da.__class__ is not Zero:
            da = swapped(da) if self.transposed else da
            db = _sum_of_cotangents(neg(matmul(da, x)), db)
        return x, Zero(x) if db.__class__ is Zero else self(a, packed, pivots, db)

    def transpose(self, ct: Any, a: Any, packed: Any, pivots: Any, b: Any) -> Any:
        if type(a) is Aval:
            raise NotImplementedError(f"{self.name}: is not linear in the matrix{here()}")
        return None, None, None, FactoredSolve(not self.transposed)(a, packed, pivots, ct)

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        if list(dims[:3]) == [None] * 3 and dims[3] is not None:
            return fold(self, xs, dims[3], -1)
        return super().vmap(axis, xs, dims)


def solve(a: Any, b: Any) -> Any:
    """A⁻¹B for matrices with equal batch axes; value and derivatives share one factorization."""
    return FactoredSolve()(a, *LuFactors()(a), b)


def inverse_permutation(order: Any) -> Any:
    """The permutation that undoes each permutation in the last axis."""
    n = order.shape[-1]
    shape = (*order.shape, n)
    places = iota(np.int32, shape, len(shape) - 1)
    hit = eq(broadcast_in_dim(order, shape, tuple(range(order.ndim))), places)
    rows = iota(np.int32, shape, len(shape) - 2)
    return reduce_sum(select(hit, rows, zeros(Aval(shape, np.dtype(np.int32)))), (order.ndim - 1,))


def lu_solve(packed: Any, order: Any, b: Any, trans: int = 0) -> Any:
    """X with A X = B, Aᵀ X = B (trans 1) or Aᴴ X = B (trans 2) from the factors of A[order]."""
    low = TriangularSolve(left_side=True, lower=True, unit_diagonal=True)
    up = TriangularSolve(left_side=True)
    if trans == 0:
        return up(packed, low(packed, take(b, order, -2)))
    if trans not in (1, 2):
        raise ValueError(f"lu_solve: needed trans 0, 1 or 2, got {trans}{here()}")
    turned = {"transpose_a": True,
              "conjugate_a": trans == 2 and dtypes.kind(packed.dtype) == "c"}
    x = replace(low, **turned)(packed, replace(up, **turned)(packed, b))
    return take(x, inverse_permutation(order), -2)
