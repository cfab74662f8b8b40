"""Special functions: values and every rule against jax.lax."""

import numpy as np
import pytest
from jax import lax

from tests.primitives.rules import check, check_eager
from toile.engine.conversion import as_array
from toile.primitives import special
from toile.transforms.jvp import jvp_flat

UNARY = {
    "erf": (-2, 2), "erfc": (-2, 2), "erf_inv": (-0.9, 0.9), "lgamma": (0.3, 5),
    "digamma": (0.3, 5), "bessel_i0e": (-3, 3), "bessel_i1e": (-3, 3),
}  # fmt: skip
BINARY = {"igamma": (0.5, 4), "igammac": (0.5, 4)}
VALUES = {"igamma_grad_a": (0.5, 4), "random_gamma_grad": (0.5, 4), "zeta": (1.5, 4)}


def uniform(limits, shape, seed=0):
    return np.random.default_rng(seed).uniform(*limits, shape).astype(np.float32)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    x = uniform(UNARY[name], (3, 4))
    check(getattr(special, name), getattr(lax, name), x, rtol=1e-4)
    check(getattr(special, name), getattr(lax, name), x[0, 0], rtol=1e-4, vmap=False)


def test_bessel_at_zero():
    x = np.array([0.0, 1e-9, 0.5], np.float32)
    check(special.bessel_i1e, lax.bessel_i1e, x, vmap=False)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    a, x = (uniform(BINARY[name], (2, 3), seed) for seed in (0, 1))
    check(getattr(special, name), getattr(lax, name), a, x, rtol=1e-4)


@pytest.mark.parametrize("name", VALUES)
def test_without_derivative(name):
    a, x = (uniform(VALUES[name], (2, 3), seed) for seed in (0, 1))
    check_eager(getattr(special, name), getattr(lax, name), [a, x], 1e-4, 1e-5)


@pytest.mark.parametrize("name", ["igamma_grad_a", "random_gamma_grad"])
def test_both_branches_in_one_row(name):
    a = np.full((2, 2), 5, np.float32)
    x = np.array([[0.01, 60], [0.5, 4]], np.float32)
    check_eager(getattr(special, name), getattr(lax, name), [a, x], 1e-4, 0)
    check_eager(getattr(special, name), getattr(lax, name), [a[0, 0], x[0, 0]], 1e-4, 0)


def test_polygamma():
    m = np.array([[0, 1, 2], [1, 2, 3]], np.float32)
    x = uniform((0.5, 4), (2, 3))
    check(special.polygamma, lax.polygamma, m, x, moving=[False, True], rtol=1e-4)


def test_betainc():
    a, b = (uniform((0.5, 4), (2, 3), seed) for seed in (0, 1))
    x = uniform((0.1, 0.9), (2, 3), 2)
    op = special.regularized_incomplete_beta
    check(op, lax.betainc, a, b, x, moving=[False, False, True], rtol=1e-4)
    xs = [as_array(v) for v in (a, b, x)]
    with pytest.raises(ValueError, match="gradient is not supported"):
        jvp_flat(lambda *v: [op(*v)], xs, xs)


def test_scalar_operand():
    a, x = as_array(np.float32(2)), as_array(uniform((0.5, 4), (2, 3)))
    (out,), (dout,) = jvp_flat(lambda a, x: [special.igamma(a, x)], [a, x], [a, x])
    assert out.shape == dout.shape == (2, 3)
