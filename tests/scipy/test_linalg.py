"""`toile.scipy.linalg` against `jax.scipy.linalg`."""

import jax
import numpy as np
import pytest

import toile
from tests.against_jax import RECORD, case, check, compare, name, runs
from toile.scipy import linalg

F = np.float32
RNG = np.random.RandomState(1)
A = RNG.randn(4, 4).astype(F)
TALL = RNG.randn(5, 3).astype(F)
WIDE = RNG.randn(3, 5).astype(F)
POS = (A @ A.T + 4 * np.eye(4)).astype(F)
COMPLEX = (A + 1j * RNG.randn(4, 4)).astype(np.complex64)
HERMITIAN = (COMPLEX @ COMPLEX.conj().T + 4 * np.eye(4)).astype(np.complex64)
BATCH = np.stack([POS, 2 * POS])
V = RNG.randn(4).astype(F)
M = RNG.randn(4, 2).astype(F)
LOWER = np.tril(A) + 3 * np.eye(4, dtype=F)
L = "scipy.linalg."


def la(name, *args, **kwargs):
    kwargs.setdefault("rtol", 1e-4)
    kwargs.setdefault("atol", 1e-5)
    return case(L + name, *args, **{"rtol64": 1e-9, **kwargs})

# Before 0.11 the gradient of JAX had a part in the triangle that is not read.
CHOLESKY = (0,) if jax.__version_info__ >= (0, 11) else ()

CASES = [
    la("cholesky", POS, grad=CHOLESKY),
    la("cholesky", POS, lower=True, grad=CHOLESKY),
    la("cholesky", HERMITIAN),
    la("cholesky", BATCH),
    la("cholesky", np.eye(3, dtype=np.int32)),
    la("det", A, grad=(0,)),
    la("inv", A, grad=(0,)),
    la("eigh", POS, eigvals_only=True, grad=(0,)),
    la("svd", TALL, compute_uv=False, grad=(0,)),
    la("lu_factor", A),
    la("lu", A, grad=(0,)),
    la("lu", TALL),
    la("lu", WIDE, permute_l=True),
    la("lu", COMPLEX),
    la("qr", A, grad=(0,)),
    la("qr", TALL, mode="economic", grad=(0,)),
    la("qr", TALL, mode="r"),
    la("solve", A, V, grad=(0, 1)),
    la("solve", A, M, grad=(0, 1)),
    la("solve", POS, M, assume_a="pos", grad=(0, 1)),
    la("solve", POS, V, assume_a="pos", lower=True, grad=(1,)),
    *(la("solve_triangular", LOWER, M, lower=True, trans=t, grad=(0, 1)) for t in (0, 1, "C")),
    la("solve_triangular", LOWER.T.copy(), V, grad=(0, 1)),
    la("solve_triangular", LOWER, V, lower=True, unit_diagonal=True),
    la("solve_triangular", np.stack([LOWER, LOWER]), np.stack([M, M]), lower=True),
    la("qr_multiply", TALL, RNG.randn(3).astype(F), mode="left"),
    la("qr_multiply", TALL, RNG.randn(2, 5).astype(F)),
    la("expm", A, grad=(0,)),
    la("expm", 0.01 * A),
    la("expm", 30 * A, rtol=1e-2),
    la("expm", np.stack([A, 0.1 * A])),
    la("expm", np.triu(A), upper_triangular=True),
    la("expm", COMPLEX),
    la("expm", 1e7 * A),
    la("expm_frechet", A, A.T.copy()),
    la("sqrtm", POS, rtol=1e-3, atol=1e-4),
    la("polar", A, rtol=1e-3, atol=1e-4),
    la("polar", TALL, method="svd", rtol=1e-3, atol=1e-4),
    la("polar", WIDE, side="left", rtol=1e-3, atol=1e-4),
    la("hessenberg", A),
    la("hessenberg", A, calc_q=True),
    la("hessenberg", np.stack([A, A.T]), calc_q=True),
    la("schur", A, rtol=1e-3, atol=1e-4),
    la("solve_sylvester", A, POS, A.T.copy(), rtol=1e-3, atol=1e-4, jit=False),
    la("solve_sylvester", A, POS, A.T.copy(), method="eigen", rtol=1e-3, atol=1e-4, jit=False),
    la("eigh_tridiagonal", V, V[:3].copy(), eigvals_only=True),
    la("eigh_tridiagonal", V, V[:3].copy(), eigvals_only=True, select="i", select_range=(1, 2)),
    la("block_diag", A, V, F(2.0), TALL, grad=(0, 1)),
    la("block_diag", np.array([1, 2]), A),
    la("toeplitz", V, grad=(0,)),
    la("toeplitz", V, np.array([9.0, 1.0, 2.0], F), grad=(0, 1)),
    la("toeplitz", M.T.copy()),
    la("hankel", V),
    la("hankel", V, np.array([9, 1, 2])),
    la("circulant", V, grad=(0,)),
    la("circulant", M.T.copy()),
    la("leslie", V, V[:3].copy(), grad=(0, 1)),
    la("companion", V, grad=(0,)),
    la("companion", np.array([2, 1, 3])),
    la("fiedler", V),
    la("fiedler_companion", RNG.randn(7).astype(F)),
    la("fiedler_companion", V),
    *(la("convolution_matrix", V, n=n, mode=m) for n in (2, 6) for m in ("full", "same", "valid")),
    la("hilbert", n=4),
    la("invhilbert", n=3),
    la("pascal", n=4),
    la("pascal", n=4, kind="lower"),
    la("invpascal", n=4),
    la("invpascal", n=4, kind="upper"),
    la("helmert", n=4),
    la("helmert", n=4, full=True),
    la("hadamard", n=4),
    la("hadamard", n=8, dtype=np.float32),
    la("dft", n=5),
    la("dft", n=5, scale="sqrtn"),
]


@pytest.mark.parametrize("this, x64", runs(CASES), ids=name)
def test_linalg(this, x64):
    check(this, x64)


def test_factor_and_solve():
    for lower in (False, True):
        got = linalg.cho_solve(linalg.cho_factor(HERMITIAN, lower=lower), M)
        np.testing.assert_allclose(HERMITIAN @ np.asarray(got), M, rtol=1e-3, atol=1e-4)
    factors = linalg.lu_factor(COMPLEX)
    for trans, matrix in enumerate((COMPLEX, COMPLEX.T, COMPLEX.conj().T)):
        for b in (V, M):
            got = np.asarray(linalg.lu_solve(factors, b, trans=trans))
            np.testing.assert_allclose(matrix @ got, b, rtol=1e-3, atol=1e-4)


def test_decompositions_reconstruct():
    u, s, vh = (np.asarray(x) for x in linalg.svd(TALL, full_matrices=False))
    np.testing.assert_allclose((u * s) @ vh, TALL, rtol=1e-4, atol=1e-5)
    w, v = (np.asarray(x) for x in linalg.eigh(HERMITIAN))
    np.testing.assert_allclose((v * w) @ v.conj().T, HERMITIAN, rtol=1e-4, atol=1e-4)
    for a, pair in ((A, linalg.rsf2csf(*linalg.schur(A))), (COMPLEX, linalg.schur(COMPLEX))):
        t, z = (np.asarray(x) for x in pair)
        np.testing.assert_allclose(np.tril(t, -1), 0, atol=1e-5)
        np.testing.assert_allclose(z @ t @ z.conj().T, a, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(z @ z.conj().T, np.eye(4), atol=1e-5)
    root = np.asarray(linalg.sqrtm(POS))
    np.testing.assert_allclose(root @ root, POS, rtol=1e-3, atol=1e-3)


def test_eigh_tridiagonal_vectors():
    d, e = V, np.array([0.5, 1e-6, -0.3], F)
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    w, v = (np.asarray(x) for x in linalg.eigh_tridiagonal(d, e))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(matrix), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(matrix @ v, v * w, atol=1e-4)
    np.testing.assert_allclose(v.T @ v, np.eye(4), atol=1e-4)


def test_funm():
    got, error = linalg.funm(POS, toile.numpy.exp, disp=False)
    want, want_error = RECORD.in_test(
        lambda: jax.scipy.linalg.funm(POS, jax.numpy.exp, disp=False), POS)
    compare(got, want, 1e-3, 1e-3, "funm")
    assert error.shape == want_error.shape == ()


def test_transformed_solves():
    batched = toile.vmap(lambda a, b: linalg.solve(a, b, assume_a="pos"))
    got = np.asarray(batched(BATCH, np.stack([V, V])))
    np.testing.assert_allclose(np.einsum("bij,bj->bi", BATCH, got), np.stack([V, V]), rtol=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: linalg.solve(A, V, assume_a="x"),
        lambda: linalg.expm(TALL),
        lambda: linalg.polar(V),
        lambda: linalg.pascal(3, kind="x"),
        lambda: linalg.hadamard(3),
        lambda: linalg.qr(A, mode="x"),
        lambda: linalg.solve_triangular(A, V, trans=5),
        lambda: linalg.companion(V[:1]),
    ],
)
def test_errors(call):
    with pytest.raises(ValueError):
        call()
