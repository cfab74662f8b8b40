"""How matrix operations are written in NumPy."""

from __future__ import annotations

from typing import Any

from toile.engine.program import Equation
from toile.exporting.numpy_writer import NumpyWriter, Rule, missing_rule
from toile.primitives import linalg_eigen, linalg_factor, linalg_solve


def _cholesky(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('cholesky')}({xs[0]})"


def _lu(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> None:
    text = f"{w.use('lu')}({xs[0]})"
    w.results(e, text if len(e.outs) == 3 else f"{text}[:2]")


def _order(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return f"{w.use('pivots_to_permutation')}({xs[0]}, {op.permutation_size})"


def _qr(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> None:
    if op.pivoting:
        raise missing_rule("to_numpy", e)
    w.results(e, f"np.linalg.qr({xs[0]}, {'complete' if op.full_matrices else 'reduced'!r})")


def _eigh(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> Any:
    if op.subset_by_index is not None:
        raise missing_rule("to_numpy", e)
    values, vectors = w.fresh(), w.fresh()
    w.line(f"{values}, {vectors} = np.linalg.eigh({xs[0]}, {'L' if op.lower else 'U'!r})")
    return vectors, values


def _eig(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> Any:
    if op.compute_left_eigenvectors:
        raise missing_rule("to_numpy", e)
    dtype = w.dtype(e.outs[0].aval.dtype)
    if not op.compute_right_eigenvectors:
        return f"np.linalg.eigvals({xs[0]}).astype({dtype})"
    values, vectors = w.fresh(), w.fresh()
    w.line(f"{values}, {vectors} = np.linalg.eig({xs[0]})")
    return f"{values}.astype({dtype})", f"{vectors}.astype({dtype})"


def _svd(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> Any:
    if op.subset_by_index is not None:
        raise missing_rule("to_numpy", e)
    if not op.compute_uv:
        return f"np.linalg.svd({xs[0]}, compute_uv=False)"
    u, s, v = w.fresh(), w.fresh(), w.fresh()
    w.line(f"{u}, {s}, {v} = np.linalg.svd({xs[0]}, {op.full_matrices})")
    return s, u, v


def _triangular(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    return (f"{w.use('solve_triangular')}({xs[0]}, {xs[1]}, {op.left_side}, {op.lower}, "
            f"{op.transpose_a}, {op.conjugate_a}, {op.unit_diagonal})")


def _tridiagonal(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    if op.perturb_singular:
        raise missing_rule("to_numpy", e)
    return f"{w.use('solve_tridiagonal')}({', '.join(xs)})"


def _factored(w: NumpyWriter, op: Any, xs: list[str], e: Equation) -> str:
    matrix = f"np.swapaxes({xs[0]}, -1, -2)" if op.transposed else xs[0]
    return f"np.linalg.solve({matrix}, {xs[3]})"


MATRICES: dict[type, Rule] = {
    linalg_factor.Cholesky: _cholesky,
    linalg_factor.Lu: _lu,
    linalg_solve.LuFactors: _lu,
    linalg_factor.LuPivotsToPermutation: _order,
    linalg_factor.Qr: _qr,
    linalg_eigen.Eigh: _eigh,
    linalg_eigen.Eig: _eig,
    linalg_eigen.Svd: _svd,
    linalg_solve.TriangularSolve: _triangular,
    linalg_solve.TridiagonalSolve: _tridiagonal,
    linalg_solve.FactoredSolve: _factored,
}
