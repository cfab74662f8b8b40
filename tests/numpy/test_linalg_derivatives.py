"""Derivatives of matrix functions at matrices of a special form: equal singular values, zeros."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
import toile.scipy.linalg as sla

RNG = np.random.default_rng(0)
INVERTIBLE = {
    "identity": np.eye(3), "negative": -2 * np.eye(3), "equal": np.diag([2.0, 2.0, 1.0]),
    "permutation": np.eye(3)[[1, 2, 0]], "orthogonal": np.linalg.qr(RNG.normal(size=(3, 3)))[0],
    "triangular": np.tril(np.ones((3, 3))), "general": RNG.normal(size=(3, 3)),
    "batch": np.stack([np.eye(3), RNG.normal(size=(3, 3))]),
    "complex": np.linalg.qr(RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3)))[0],
}
RECTANGULAR = {"tall": np.eye(4, 3), "wide": np.eye(2, 4), "tall-general": RNG.normal(size=(4, 3))}
SINGULAR = {"zero": np.zeros((3, 3)), "ones": np.ones((3, 3)), "nilpotent": np.eye(3, k=1),
            "diagonal": np.diag([2.0, 2.0, 0.0])}
FUNCTIONS = {  # name: (function, the matrices at which it is smooth)
    "pinv": (jnp.linalg.pinv, INVERTIBLE | RECTANGULAR),
    "pinv-rtol": (lambda a: jnp.linalg.pinv(a, rtol=1e-3), INVERTIBLE | RECTANGULAR),
    "inv": (jnp.linalg.inv, INVERTIBLE),
    "solve": (lambda a: jnp.linalg.solve(a, jnp.ones((*a.shape[:-1], 1))), INVERTIBLE),
    "det": (jnp.linalg.det, INVERTIBLE | SINGULAR),
    "slogdet": (lambda a: jnp.linalg.slogdet(a)[1], INVERTIBLE),
    "expm": (sla.expm, INVERTIBLE | SINGULAR),
    "matrix_power": (lambda a: jnp.linalg.matrix_power(a, 3), INVERTIBLE | SINGULAR),
    "matrix_power-inverse": (lambda a: jnp.linalg.matrix_power(a, -2), INVERTIBLE),
    "norm": (jnp.linalg.matrix_norm, INVERTIBLE | RECTANGULAR),
}
CASES = [(name, matrix) for name, (_, matrices) in FUNCTIONS.items() for matrix in matrices]


def directional(f, a, da, step=1e-5):
    return (np.asarray(f(a + step * da)) - np.asarray(f(a - step * da))) / (2 * step)


@pytest.mark.parametrize(("name", "matrix"), CASES)
def test_derivatives_are_differences(name, matrix):
    f, a = FUNCTIONS[name][0], FUNCTIONS[name][1][matrix]
    da = np.random.default_rng(1).normal(size=a.shape).astype(a.dtype)
    with toile.enable_x64(True):
        y, dy = toile.jvp(f, (a,), (da,))
        np.testing.assert_allclose(dy, directional(f, a, da), rtol=1e-5, atol=1e-7)
        ct = np.random.default_rng(2).normal(size=y.shape).astype(y.dtype)
        (grad,) = toile.vjp(f, a)[1](ct)
        product = np.sum(grad * da)
        product = product if np.iscomplexobj(y) else product.real
        np.testing.assert_allclose(product, np.sum(ct * dy), rtol=1e-9)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("hermitian", [False, True])
def test_derivative_of_pinv_at_a_constant_rank(rank, hermitian):
    rng = np.random.default_rng(rank)
    left, right = rng.normal(size=(4, rank)), rng.normal(size=(rank, 3))
    dleft, dright = rng.normal(size=left.shape), rng.normal(size=right.shape)

    def f(t):
        low, up = left + t * dleft, right + t * dright
        return jnp.linalg.pinv(low @ (low.T if hermitian else up), hermitian=hermitian)

    with toile.enable_x64(True):
        slope = toile.jvp(f, (0.0,), (1.0,))[1]
        np.testing.assert_allclose(slope, directional(f, 0.0, 1.0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 200_000), (200_000, 1), (100_000, 2)])
def test_derivative_of_pinv_makes_no_large_matrices(shape):
    a = np.ones(shape, np.float32) if 1 in shape else np.eye(*shape, dtype=np.float32)
    grad = toile.grad(lambda a: jnp.linalg.pinv(a).sum())(a)
    assert grad.shape == shape and np.isfinite(grad).all()


def test_second_derivative_of_pinv():
    with toile.enable_x64(True):
        f = lambda t: jnp.linalg.pinv(jnp.eye(3) * t)[0, 0]
        np.testing.assert_allclose(toile.grad(toile.grad(f))(2.0), 2 / 2.0**3, rtol=1e-9)
