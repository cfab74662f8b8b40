"""Rows of linear algebra, random bits and collectives.

Decompositions are checked by what defines them: their factors are not unique. Where an operation
reads part of a matrix only, the row makes the matrix from one without structure.
"""

from __future__ import annotations

import jax
import numpy as np
import scipy.linalg

import toile
import toile.numpy as jnp
from tests.cases import COMPLEX, MATRICES, REALS, I, Row, X
from toile.engine import dtypes
from toile.primitives import collectives as g
from toile.primitives import linalg_eigen as e
from toile.primitives import linalg_factor as f
from toile.primitives import linalg_solve as s
from toile.primitives import random as r

M = X(3, 3)
TALL = X(4, 3)


def hermitian(x):
    """A Hermitian matrix."""
    return (x + jnp.conj(x.T)) / 2 if hasattr(x, "weak_type") else (x + x.conj().T) / 2


def definite(x):
    """A positive definite matrix."""
    library = jnp if hasattr(x, "weak_type") else np
    return x @ library.conj(x.T) + library.eye(x.shape[0], dtype=x.dtype)


def regular(x):
    """A matrix with a dominant diagonal, whose pivots do not change nearby."""
    library = jnp if hasattr(x, "weak_type") else np
    return x + 6 * library.eye(*x.shape, dtype=x.dtype)


def near(a, b, scale=1.0):
    """Equality within the precision of the dtype."""
    eps = np.finfo(b.dtype).eps
    np.testing.assert_allclose(a, b, rtol=200 * eps, atol=scale * 200 * eps)


def unitary(q):
    near(q.conj().T @ q, np.eye(q.shape[1], dtype=q.dtype))


def check_lu(outs, x):
    packed, pivots, order = outs
    m, n = packed.shape
    k = min(m, n)
    low = np.tril(packed[:, :k], -1) + np.eye(m, k, dtype=packed.dtype)
    near(low @ np.triu(packed[:k]), x[order])
    rows = np.arange(m)
    for i, p in enumerate(pivots):
        rows[[i, p]] = rows[[p, i]]
    np.testing.assert_array_equal(rows, order)


def check_qr(outs, x):
    q, upper, *order = outs
    unitary(q)
    near(q @ upper, x[:, order[0]] if order else x)
    near(upper, np.triu(upper))


def check_eigh(outs, x):
    vectors, values = outs
    unitary(vectors)
    near(hermitian(x) @ vectors, vectors * values)
    assert (np.diff(values) >= 0).all()


def check_eig(outs, x):
    values, left, right = outs
    near(x @ right, right * values)
    near(left.conj().T @ x, values[:, None] * left.conj().T)


def check_svd(outs, x):
    values, u, v = outs
    k = len(values)
    unitary(u)
    unitary(v.conj().T)
    near((u[:, :k] * values) @ v[:k], x)
    assert (np.diff(values) <= 0).all() and (values >= 0).all()


def check_schur(outs, x):
    form, q = outs
    unitary(q)
    near(q @ form @ q.conj().T, x)
    near(form, np.triu(form, -1))


def same_spectrum(matrix, x):
    def sort(v):
        return v[np.lexsort((v.imag.round(3), v.real.round(3)))]

    near(sort(np.linalg.eigvals(matrix)), sort(np.linalg.eigvals(x)), 50)


def check_hessenberg(outs, x):
    same_spectrum(np.triu(outs[0], -1), x)


def check_tridiagonal(outs, x):
    _, d, off, _ = outs
    near(np.linalg.eigvalsh(np.diag(d) + np.diag(off, 1) + np.diag(off, -1)),
         np.linalg.eigvalsh(hermitian(x)), 10)


def raw_qr(x):
    (packed, tau), _ = scipy.linalg.qr(x, mode="raw")
    return [packed.astype(x.dtype), tau.astype(x.dtype)]


def triangle_solve(x, b):
    return np.linalg.solve(np.tril(regular(x)), b).astype(x.dtype)


def bands(lower, d, upper):
    return np.diag(d + 5) + np.diag(lower[1:], -1) + np.diag(upper[:-1], 1)


FACTORS = [
    Row(f.Cholesky, lambda x: f.Cholesky()(definite(x)), (M,),
        lambda x: np.linalg.cholesky(definite(x)), dtypes=MATRICES),
    Row(f.CholeskyUpdate, lambda x, v: f.CholeskyUpdate()(jnp.triu(regular(x)), v), (M, X(3)),
        check=lambda outs, x, v: near(
            outs[0].T @ outs[0],
            np.triu(regular(x)).T @ np.triu(regular(x)) + np.outer(v, v), 50), moving=()),
    Row(f.Lu, f.Lu(), (TALL,), check=check_lu, dtypes=MATRICES),
    Row(f.Lu, f.Lu(), (X(3, 4),), check=check_lu, label="wide"),
    Row(f.LuPivotsToPermutation, f.LuPivotsToPermutation(4), (I(2, low=2, high=3),),
        lambda p: permuted(p, 4)),
    Row(f.Geqrf, f.Geqrf(), (TALL,), raw_qr, dtypes=MATRICES, moving=()),
    Row(f.HouseholderProduct, lambda x: f.HouseholderProduct()(*f.Geqrf()(x)), (TALL,),
        check=lambda outs, x: check_qr([outs[0], outs[0].conj().T @ x], x), dtypes=MATRICES,
        moving=()),
    Row(f.Ormqr, lambda x, y: f.Ormqr()(*f.Geqrf()(x), y), (TALL, X(4, 2)),
        lambda x, y: np.linalg.qr(x, "complete")[0] @ y, dtypes=MATRICES, moving=()),
    Row(f.Ormqr, lambda x, y: f.Ormqr(False, True)(*f.Geqrf()(x), y), (TALL, X(2, 4)),
        lambda x, y: y @ np.linalg.qr(x, "complete")[0].conj().T, dtypes=MATRICES, moving=(),
        label="right"),
    Row(f.Qr, f.Qr(full_matrices=False), (TALL,), check=check_qr, dtypes=MATRICES),
    Row(f.Qr, f.Qr(), (TALL,), check=check_qr, moving=(), label="full"),
    Row(f.Qr, f.Qr(True, False), (TALL,), check=check_qr, moving=(), label="pivoting"),
]


def permuted(pivots, size):
    rows = np.arange(size, dtype=np.int32)
    for i, p in enumerate(pivots):
        rows[[i, p]] = rows[[p, i]]
    return rows


EIGEN = [
    Row(e.Eigh, lambda x: e.Eigh()(hermitian(x)), (M,), check=check_eigh, dtypes=MATRICES,
        moving=()),
    Row(e.Eigh, lambda x: gauge_free(*e.Eigh()(hermitian(x))), (M,),
        lambda x: gauge_free_numpy(x), dtypes=REALS, label="slope", slack=1e-5),
    Row(e.Eigh, lambda x: e.Eigh(False)(hermitian(x))[1], (M,),
        lambda x: np.linalg.eigvalsh(hermitian(x)), dtypes=MATRICES, label="values", slack=1e-5),
    Row(e.Tridiagonal, lambda x: e.Tridiagonal()(hermitian(x)), (X(4, 4),),
        check=check_tridiagonal, moving=()),
    Row(e.Eig, e.Eig(), (X(4, 4),), check=check_eig, dtypes=MATRICES, moving=()),
    Row(e.Eig, lambda x: jnp.sum(e.Eig(False, False)(x)[0] ** 3), (X(4, 4),),
        lambda x: np.sum(np.linalg.eigvals(x).astype(np.complex128) ** 3).astype(
            np.result_type(x, np.complex64)), dtypes=MATRICES, label="values", slack=1e-5,
        rtol=1e-4, second=False),
    Row(e.Schur, e.Schur(), (X(4, 4),), check=check_schur, dtypes=MATRICES, moving=()),
    Row(e.Hessenberg, e.Hessenberg(), (X(4, 4),), check=check_hessenberg, dtypes=MATRICES,
        moving=()),
    Row(e.Svd, e.Svd(), (TALL,), check=check_svd, dtypes=MATRICES, moving=()),
    Row(e.Svd, lambda x: e.Svd(False, False)(x)[0], (TALL,),
        lambda x: np.linalg.svd(x, compute_uv=False), dtypes=MATRICES, label="values", slack=1e-5),
    Row(e.Svd, lambda x: product_of_svd(*e.Svd(False)(x)), (TALL,),
        lambda x: svd_numpy(x), label="slope", slack=1e-5),
]


def gauge_free(vectors, values):
    """Eigenvalues, and squares of the components of eigenvectors: signs do not matter."""
    return [values, vectors * vectors]


def gauge_free_numpy(x):
    values, vectors = np.linalg.eigh(hermitian(x))
    return [values, vectors * vectors]


def product_of_svd(values, u, v):
    """U Vᴴ, which the signs of the singular vectors leave alone."""
    return u @ v


def svd_numpy(x):
    u, _, v = np.linalg.svd(x, full_matrices=False)
    return u @ v


SOLVES = [
    Row(s.TriangularSolve,
        lambda x, b: s.TriangularSolve(left_side=True, lower=True)(regular(x), b),
        (M, X(3, 2)), triangle_solve, dtypes=MATRICES, linear=(1,)),
    Row(s.TriangularSolve,
        lambda x, b: s.TriangularSolve(transpose_a=True, unit_diagonal=True)(x, b), (M, X(2, 3)),
        lambda x, b: np.linalg.solve(np.triu(x, 1) + np.eye(3), b.T).T.astype(x.dtype),
        dtypes=MATRICES, linear=(1,), label="right"),
    Row(s.TriangularSolve,
        lambda x, b: s.TriangularSolve(True, True, True, True)(regular(x), b), (M, X(3, 2)),
        lambda x, b: np.linalg.solve(np.tril(regular(x)).conj().T, b), dtypes=COMPLEX,
        linear=(1,), label="adjoint"),
    Row(s.TridiagonalSolve, lambda a, d, c, b: s.TridiagonalSolve()(a, d + 5, c, b),
        (X(4), X(4), X(4), X(4, 2)),
        lambda a, d, c, b: np.linalg.solve(bands(a, d, c), b).astype(b.dtype), dtypes=MATRICES,
        linear=(3,)),
    Row(s.LuFactors, s.LuFactors(), (M,),
        check=lambda outs, x: check_lu([*outs, permuted(outs[1], 3)], x), dtypes=MATRICES,
        moving=()),
    *(Row(s.FactoredSolve,
          lambda x, b, k=k: s.FactoredSolve(k)(regular(x), *s.LuFactors()(regular(x)), b),
          (M, X(3, 2)), lambda x, b, k=k: np.linalg.solve(
              regular(x).T if k else regular(x), b).astype(b.dtype),
          dtypes=MATRICES, linear=(1,), label="transposed" if k else "") for k in (False, True)),
]


# ------------------------------------------------------------------------------------ random bits


def words(keys):
    return r.RandomUnwrap()(keys)


def keys(data):
    return r.RandomWrap(dtypes.key_dtype())(data)


def jax_words(function):
    """The same on JAX's keys, given and returned as their words."""
    def oracle(data, *rest):
        out = function(jax.random.wrap_key_data(jax.numpy.asarray(data)), *rest)
        is_key = jax.dtypes.issubdtype(out.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(out) if is_key else out)

    return oracle


WORDS = I(2, high=2**31 - 1, dtype="uint32")
RANDOM = [
    Row(r.RandomSeed, lambda x: words(r.RandomSeed(dtypes.key_dtype())(x)), (I(high=1000),),
        lambda x: np.asarray(jax.random.key_data(jax.random.key(int(x))))),
    Row(r.RandomSplit, lambda d: words(r.RandomSplit((2, 3))(keys(d))), (WORDS,),
        jax_words(lambda k: jax.random.split(k, (2, 3)))),
    Row(r.RandomFoldIn, lambda d, x: words(r.RandomFoldIn()(keys(d), x)),
        (WORDS, I(high=99, dtype="uint32")), jax_words(jax.random.fold_in)),
    *(Row(r.RandomBits, lambda d, k=k: r.RandomBits(k, (3, 5))(keys(d)), (WORDS,),
          jax_words(lambda key, k=k: jax.random.bits(key, (3, 5), f"uint{k}")), label=f"{k}")
      for k in (8, 16, 32)),
    Row(r.RandomWrap, lambda d: words(jnp.reshape(keys(d), (1,))), (WORDS,),
        lambda d: d.reshape(1, 2)),
    Row(r.RandomUnwrap, lambda d: words(keys(d)), (WORDS,), np.copy),
    Row(r.RandomClone, lambda d: words(r.RandomClone()(keys(d))), (WORDS,), np.copy),
    Row(r.RandomConsume, lambda d: words(r.RandomConsume()(keys(d))), (WORDS,), np.copy),
]


# -------------------------------------------------------------------------------- collectives


def mapped(op):
    """The operation over an axis of size 4, which is the operand's first."""
    return toile.vmap(lambda *xs: op(*xs), axis_name="i", axis_size=4)


def total(x, function):
    return np.broadcast_to(function(x, axis=0), x.shape)


GROUPS = ((0, 2), (1, 3))


def grouped_sum(x):
    out = np.empty_like(x)
    for a, b in GROUPS:
        out[[a, b]] = x[a] + x[b]
    return out


E4 = X(4, 3)
COLLECTIVES = [
    Row(op, mapped(made), operands, oracle, staged=False, label=label, dtypes=dtypes,
        linear=linear, moving=moving)
    for op, made, operands, oracle, label, dtypes, linear, moving in [
        (g.AllReduce, g.AllReduce("sum", ("i",)), (E4,), lambda x: total(x, np.sum), "sum",
         MATRICES, (0,), None),
        (g.AllReduce, g.AllReduce("max", ("i",)), (E4,), lambda x: total(x, np.max), "max",
         ("float32", "int32"), (), ()),
        (g.AllReduce, g.AllReduce("min", ("i",)), (E4,), lambda x: total(x, np.min), "min",
         ("float32", "int32"), (), ()),
        (g.AllReduce, g.AllReduce("sum", ("i",), GROUPS), (E4,), grouped_sum, "groups", REALS,
         (0,), None),
        (g.PPermute, g.PPermute("i", ((0, 1), (1, 3), (3, 0))), (E4,),
         lambda x: np.stack([x[3], x[0], 0 * x[0], x[1]]), "", REALS, (0,), None),
        (g.AllGather, g.AllGather("i", 1), (X(4, 3, 2),),
         lambda x: np.broadcast_to(np.moveaxis(x, 0, 1), (4, 3, 4, 2)), "", REALS, (0,), None),
        (g.AllGather, g.AllGather("i", 0, True), (X(4, 3, 2),),
         lambda x: np.broadcast_to(x.reshape(12, 2), (4, 12, 2)), "tiled", REALS, (0,), None),
        (g.ReduceScatter, g.ReduceScatter("i", 1), (X(4, 3, 4),),
         lambda x: np.moveaxis(x.sum(0), 1, 0), "", REALS, (0,), None),
        (g.ReduceScatter, g.ReduceScatter("i", 0, True), (X(4, 8, 2),),
         lambda x: x.sum(0).reshape(4, 2, 2), "tiled", REALS, (0,), None),
        (g.AllToAll, g.AllToAll("i", 0, 1), (X(4, 4, 2),),
         lambda x: x.transpose(1, 0, 2).reshape(4, 1, 8), "", REALS, (0,), None),
        (g.AxisIndex, lambda: g.AxisIndex("i")(), (), lambda: np.arange(4, dtype=np.int32), "",
         ("float32",), (), ()),
    ]
]

ROWS = [*FACTORS, *EIGEN, *SOLVES, *RANDOM, *COLLECTIVES]
