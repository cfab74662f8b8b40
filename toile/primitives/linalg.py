"""Base of the linear algebra operations: their family, and matrix algebra on traced values.

A `MatrixOperation` works on the last axes of its operands and is batched over the leading ones; a
kernel that fails gives NaN. The decompositions are in `linalg_factor` and `linalg_eigen`, solves in
`linalg_solve`. This module may import the engine, the primitives below it and the array kernels.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from toile.engine import dtypes
from toile.engine.avals import Aval
from toile.engine.errors import shape_error
from toile.engine.operation import Axis, Dim, Operation, infer_list
from toile.engine.source import here
from toile.primitives.arrays import lapack
from toile.primitives.bits import eq, ge
from toile.primitives.complexes import conj
from toile.primitives.contractions import contract_labels
from toile.primitives.elementwise import convert, div, select
from toile.primitives.families import (
    add,
    bdim_at,
    broadcast_in_dim,
    full_like,
    reduce_sum,
    sub,
    transpose,
    zeros,
)
from toile.primitives.gathers import Gather, GatherDimensionNumbers, GatherScatterMode
from toile.primitives.shapes import iota

Shape = tuple[int, ...]

HIGHEST = ("HIGHEST", "HIGHEST")  # lax.Precision names: float32 is not rounded to TF32


class MatrixOperation(Operation):
    """An operation on matrices and vectors in the last axes of its operands."""

    # The rank of one element of the batch, for each operand.
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def specs(self, dtype: Any, *shapes: Shape) -> Sequence[tuple[Shape, Any]]:
        """Shapes and dtypes of the results for one element of the batch."""
        raise NotImplementedError

    def kernel(self, *xs: Any) -> tuple[Any, ...] | None:
        """The results for one element of the batch; None if the routine failed."""
        raise NotImplementedError

    def infer(self, *avals: Aval) -> Any:
        batch = self._batch(avals)
        dtype = avals[0].dtype
        weak = all(a.weak_type for a in avals)
        shapes = [a.shape[a.ndim - r :] for a, r in zip(avals, self.ranks, strict=True)]
        outs = [Aval((*batch, *s), np.dtype(t), weak) for s, t in self.specs(dtype, *shapes)]
        return outs if self.multiple else outs[0]

    def _batch(self, avals: Sequence[Aval]) -> Shape:
        """The batch shape, which all operands share; their dtypes must be equal too."""
        for a, r in zip(avals, self.ranks, strict=True):
            if a.ndim < r:
                raise shape_error(self.name, f"operands with at least {self.ranks} axes", avals)
        self.check_dtypes(avals)
        batches = {a.shape[: a.ndim - r] for a, r in zip(avals, self.ranks, strict=True)}
        if len(batches) > 1:
            raise shape_error(
                self.name, f"equal batch axes before the last {self.ranks} of each operand", avals,
                "broadcast the operands first",
            )
        return batches.pop()

    def check_dtypes(self, avals: Sequence[Aval]) -> None:
        dtype = avals[0].dtype
        if dtypes.kind(dtype) not in "fc" or any(a.dtype != dtype for a in avals):
            raise shape_error(self.name, "float or complex operands of equal dtypes", avals,
                              "convert with .astype")

    def eager(self, xp: Any, *xs: Any) -> Any:
        avals = infer_list(self, [Aval(x.shape, x.dtype) for x in xs])
        specs = [(a.shape, a.dtype) for a in avals]
        results = lapack.batched(xp, self.kernel, xs, self.ranks, specs)
        return results if self.multiple else results[0]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        raise NotImplementedError(f"Differentiation rule for '{self.name}' not implemented{here()}")

    def vmap(self, axis: Axis, xs: Sequence[Any], dims: Sequence[Dim]) -> tuple[Any, Any]:
        moved = [bdim_at(x, d, axis[1]) for x, d in zip(xs, dims, strict=True)]
        out = self(*moved)
        return (out, [0] * len(out)) if self.multiple else (out, 0)

    def square(self, shape: Shape) -> None:
        """Refuse matrices that are not square."""
        if shape[0] != shape[1]:
            raise self.unfit("a square matrix", shape)

    def unfit(self, needed: str, *shapes: Shape) -> ValueError:
        """The error for matrices of the wrong sizes."""
        got = ", ".join(map(str, shapes))
        return ValueError(f"{self.name}: needed {needed}, got shape {got}{here()}")


# ------------------------------------------------------------------------- algebra of traced values


def matmul(x: Any, y: Any) -> Any:
    """Product of matrices in the last two axes at full precision; leading axes are equal."""
    batch = string.ascii_lowercase[: x.ndim - 2]
    return contract_labels(x, y, f"{batch}XY", f"{batch}YZ", f"{batch}XZ", None, HIGHEST)


def swapped(x: Any) -> Any:
    """The transposes of the matrices in the last two axes."""
    n = x.ndim
    return transpose(x, (*range(n - 2), n - 1, n - 2))


def conjugate(x: Any) -> Any:
    """Complex conjugate; real numbers are unchanged."""
    return conj(x) if dtypes.kind(x.dtype) == "c" else x


def adjoint(x: Any) -> Any:
    """The conjugate transposes of the matrices in the last two axes."""
    return conjugate(swapped(x))


def symmetrize(x: Any) -> Any:
    """(x + xᴴ) / 2."""
    return div(add(x, adjoint(x)), full_like(x, 2))


def at_least(shape: Shape, k: int) -> Any:
    """Whether row + k >= column, for every element of a shape."""
    n = len(shape)
    rows, columns = iota(np.int32, shape, n - 2), iota(np.int32, shape, n - 1)
    return ge(add(rows, full_like(rows, k)), columns)


def tril(x: Any, k: int = 0) -> Any:
    """The lower triangles, up to the k-th diagonal."""
    return select(at_least(x.shape, k), x, zeros(Aval(x.shape, x.dtype)))


def triu(x: Any, k: int = 0) -> Any:
    """The upper triangles, from the k-th diagonal."""
    return select(at_least(x.shape, k - 1), zeros(Aval(x.shape, x.dtype)), x)


def on_diagonal(shape: Shape) -> Any:
    """Whether row = column, for every element of a shape."""
    n = len(shape)
    return eq(iota(np.int32, shape, n - 2), iota(np.int32, shape, n - 1))


def eye(shape: Shape, dtype: Any) -> Any:
    """Identity matrices in the last two axes."""
    return convert(on_diagonal(shape), dtype)


def diagonal(x: Any) -> Any:
    """The diagonals of square matrices."""
    kept = select(on_diagonal(x.shape), x, zeros(Aval(x.shape, x.dtype)))
    return reduce_sum(kept, (x.ndim - 1,))


def along_rows(w: Any, shape: Shape) -> Any:
    """A vector for each matrix of `shape`, repeated in each row: element (i, j) is w[j]."""
    n = len(shape)
    return broadcast_in_dim(w, shape, (*range(n - 2), n - 1))


def along_columns(w: Any, shape: Shape) -> Any:
    """A vector for each matrix of `shape`, repeated in each column: element (i, j) is w[i]."""
    return broadcast_in_dim(w, shape, tuple(range(len(shape) - 1)))


def take(x: Any, index: Any, axis: int) -> Any:
    """Rows (axis -2) or columns (axis -1) of each matrix, in the order of its index vector."""
    n, batch = x.ndim, tuple(range(x.ndim - 2))
    axis += n
    other = 2 * n - 3 - axis
    sizes = [min(1, s) for s in x.shape]
    sizes[other] = x.shape[other]
    numbers = GatherDimensionNumbers((other,), (axis,), (axis,), batch, batch)
    op = Gather(numbers, tuple(sizes), mode=GatherScatterMode.CLIP)
    return op(x, broadcast_in_dim(index, (*index.shape, 1), tuple(range(index.ndim))))


def inverse_gaps(w: Any, shape: Shape) -> Any:
    """1 / (w[j] - w[i]) off the diagonal, 0 on it."""
    unit = eye(shape, w.dtype)
    gaps = sub(add(unit, along_rows(w, shape)), along_columns(w, shape))
    return sub(div(full_like(gaps, 1), gaps), unit)
