"""toile.numpy.linalg against jax.numpy.linalg: values, dtypes, errors, gradients."""

import jax
import numpy as np
import pytest

import toile
import toile.numpy as tnp
from tests.numpy import compare

RNG = np.random.default_rng(0)
S = RNG.normal(size=(4, 4)).astype(np.float32) + 3 * np.eye(4, dtype=np.float32)
BATCH = RNG.normal(size=(2, 3, 3)).astype(np.float32) + 2 * np.eye(3, dtype=np.float32)
compare.DATA.update(S=S, P=S @ S.T, B=BATCH, R=RNG.normal(size=(5, 3)).astype(np.float32),
                    C=(BATCH[0] + 1j * BATCH[1]).astype(np.complex64),
                    D=np.array([[1, 2], [2, 4]], np.float32),
                    Z=np.array([[0, 1], [1, 0]], np.int32))

CASES = """
jnp.linalg.norm(x)|jnp.linalg.norm(t)|jnp.linalg.norm(m, 1)|jnp.linalg.norm(m, -1)
jnp.linalg.norm(m, jnp.inf)|jnp.linalg.norm(m, -jnp.inf)|jnp.linalg.norm(m, 2)
jnp.linalg.norm(m, -2)|jnp.linalg.norm(m, 'nuc')|jnp.linalg.norm(m, 'fro')|jnp.linalg.norm(m, 3)
jnp.linalg.norm(x, 3)|jnp.linalg.norm(x, 0)|jnp.linalg.norm(x, jnp.inf)|jnp.linalg.norm(t, axis=1)
jnp.linalg.norm(t, 2, axis=(0, 2))|jnp.linalg.norm(x, 'fro')
jnp.linalg.norm(t, axis=(1, 2), keepdims=True)|jnp.linalg.norm(t, 'nuc', (2, 0), True)
jnp.linalg.norm(c)|jnp.linalg.norm(i)|jnp.linalg.norm(t, 1)
jnp.linalg.norm(m, axis=1, keepdims=True)|jnp.linalg.vector_norm(t)
jnp.linalg.vector_norm(t, axis=(0, 1), ord=1)|jnp.linalg.matrix_norm(t, ord=1)|jnp.linalg.det(S)
jnp.linalg.det(B)|jnp.linalg.det(D)|jnp.linalg.det(m)|jnp.linalg.det(Z)|jnp.linalg.slogdet(S)
jnp.linalg.slogdet(B)|jnp.linalg.slogdet(D)|jnp.linalg.slogdet(C)|jnp.linalg.inv(S)
jnp.linalg.inv(B)|jnp.linalg.inv(C)|jnp.linalg.inv(m)|jnp.linalg.inv(Z)
jnp.linalg.solve(S, jnp.ones(4))|jnp.linalg.solve(B, jnp.ones(3))
jnp.linalg.solve(B, jnp.ones((2, 3, 2)))|jnp.linalg.solve(S, jnp.ones((4, 2)))
jnp.linalg.solve(C, c)|jnp.linalg.solve(m, x)|jnp.linalg.solve(S, x)|jnp.linalg.cholesky(P)
jnp.linalg.cholesky(P, upper=True)|jnp.linalg.cholesky(-P)|jnp.linalg.cholesky(x)
jnp.linalg.eigvalsh(P)|jnp.linalg.eigvalsh(P, 'U')|jnp.linalg.eigh(P)[0]
jnp.abs(jnp.linalg.eigh(P)[1])|jnp.linalg.eigh(P, UPLO='X')|jnp.sort(jnp.linalg.eigvals(S))
jnp.linalg.svd(R, compute_uv=False)|jnp.linalg.svdvals(B)
jnp.linalg.svd(P, compute_uv=False, hermitian=True)|[u.shape for u in jnp.linalg.svd(R)]
[u.shape for u in jnp.linalg.svd(R, full_matrices=False)]|jnp.abs(jnp.linalg.qr(R)[0])
jnp.abs(jnp.linalg.qr(R, mode='r'))|[u.shape for u in jnp.linalg.qr(R, mode='complete')]
jnp.linalg.qr(R, mode='x')|jnp.linalg.pinv(R)|jnp.linalg.pinv(D)|jnp.linalg.pinv(R.T, rtol=0.1)
jnp.linalg.matrix_rank(D)|jnp.linalg.matrix_rank(R)|jnp.linalg.matrix_rank(B)
jnp.linalg.matrix_rank(x)|jnp.linalg.cond(S)|jnp.linalg.cond(B, 1)|jnp.linalg.cond(S, 'fro')
jnp.linalg.cond(R)|jnp.linalg.matrix_power(S, 3)|jnp.linalg.matrix_power(B, -2)
jnp.linalg.matrix_power(S, 0)|jnp.linalg.matrix_power(m, 2)|jnp.linalg.lstsq(R, jnp.ones(5))
jnp.linalg.lstsq(R, jnp.ones((5, 2)))[0]|jnp.linalg.lstsq(D, jnp.ones(2))[0]|jnp.linalg.lstsq(R, x)
jnp.linalg.tensorinv(jnp.eye(6).reshape(2, 3, 2, 3) * 2)
jnp.linalg.tensorsolve(jnp.eye(6).reshape(2, 3, 6) * 2, m)|jnp.linalg.cross(x, y)
jnp.linalg.cross(x[:2], y)|jnp.linalg.trace(B)|jnp.linalg.diagonal(B, offset=1)
jnp.linalg.matrix_transpose(B)|jnp.linalg.vecdot(x, y)|jnp.linalg.tensordot(m, m)
jnp.sort_complex(jnp.roots(jnp.array([1.0, -6.0, 11.0, -6.0])))|jnp.roots(jnp.array([0.0, 0.0]))
jnp.sort_complex(jnp.roots(jnp.array([0.0, 1.0, -1.0, 0.0])))|lib.jit(jnp.linalg.inv)(S)
lib.vmap(jnp.linalg.det)(B)|lib.vmap(jnp.linalg.solve)(B, m)
"""


@pytest.mark.parametrize("case", [c for line in CASES.strip().split("\n") for c in line.split("|")])
def test_as_jax(case):
    compare.check(case, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("text", [
    "jnp.sum(jnp.linalg.inv(a) ** 2)", "jnp.linalg.det(a)", "jnp.linalg.slogdet(a)[1]",
    "jnp.sum(jnp.linalg.solve(a, a[0]) ** 2)", "jnp.sum(jnp.linalg.cholesky(a @ a.T) ** 2)",
    "jnp.sum(jnp.linalg.eigvalsh(a @ a.T) ** 2)", "jnp.linalg.norm(a, 'nuc')",
    "jnp.sum(jnp.abs(jnp.linalg.qr(a)[1]))", "jnp.sum(jnp.linalg.pinv(a[:, :2]) ** 2)",
    "jnp.linalg.norm(a)", "jnp.linalg.norm(a[0], 3)", "jnp.linalg.det(a[:3, :3])",
])
def test_gradients_agree(text):
    wanted = compare.RECORD.in_test(
        lambda: jax.grad(lambda a: eval(text, {"jnp": jax.numpy, "a": a}))(S))
    got = toile.grad(lambda a: eval(text, {"jnp": tnp, "a": a}))(S)
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def test_factors_multiply_back():
    a = tnp.asarray(compare.DATA["R"])
    u, s, vh = tnp.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose((u * s) @ vh, a, atol=1e-5)
    q, r = tnp.linalg.qr(a)
    np.testing.assert_allclose(q @ r, a, atol=1e-5)
    w, v = tnp.linalg.eig(tnp.asarray(S))
    np.testing.assert_allclose(S @ np.asarray(v), np.asarray(v) * np.asarray(w), atol=1e-4)
