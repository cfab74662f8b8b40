"""jet: against JAX where it has rules, against nested jvp elsewhere, and its transformations."""

import math
import re

import jax
import numpy as np
import pytest
from jax.experimental import jet as theirs

import toile
import toile.numpy as jnp
from tests.random.oracle import x64
from toile import lax
from toile.experimental import jet as ours

LIBS = ((toile, ours), (jax, theirs))
ORDER = 4

# Functions of one or two vectors, for either library.
AS_JAX = {
    "sin": lambda l: l.numpy.sin,
    "cosh": lambda l: l.numpy.cosh,
    "tanh": lambda l: l.numpy.tanh,
    "exp": lambda l: l.numpy.exp,
    "log": lambda l: l.numpy.log,
    "sqrt": lambda l: l.numpy.sqrt,
    "abs": lambda l: l.numpy.abs,
    "floor": lambda l: l.numpy.floor,
    "arctanh": lambda l: l.numpy.arctanh,
    "erf": lambda l: l.scipy.special.erf,
    "erfinv": lambda l: l.scipy.special.erfinv,
    "sigmoid": lambda l: l.nn.sigmoid,
    "softmax": lambda l: l.nn.softmax,
    "cumprod": lambda l: l.numpy.cumprod,
    "max": lambda l: l.numpy.max,
    "fft": lambda l: l.numpy.fft.fft,
    "integer power": lambda l: lambda x: x**5 + x**-3,
    "constant power": lambda l: lambda x: x**2.5,
    "indexing": lambda l: lambda x: x[1:].at[0].add(x[0]),
    "where": lambda l: lambda x: l.numpy.where(x > 0.5, x * x, 3.0),
    "jit": lambda l: l.jit(lambda x: l.numpy.sin(x) * x),
    "power": lambda l: lambda x, y: x**y,
    "quotient": lambda l: lambda x, y: (1.0 - x) / y,
    "maximum": lambda l: l.numpy.maximum,
    "ties": lambda l: lambda x, y: l.numpy.minimum(x, 0.0 * y + x),
    "arctan2": lambda l: l.numpy.arctan2,
    "product": lambda l: l.numpy.outer,
    "tree": lambda l: lambda x, y: {"a": x * y, "b": (x.sum(), 3.0, y > x)},
}


def polynomials(n, order=ORDER, seed=0):
    """Values and derivatives for n vectors of length 3."""
    rng = np.random.default_rng(seed)
    return ([rng.uniform(0.3, 0.8, 3) for _ in range(n)],
            [[rng.normal(size=3) for _ in range(order)] for _ in range(n)])


def check(tree, other, tolerance=1e-9):
    mine, its = toile.tree.map(np.asarray, tree), jax.tree.map(np.asarray, other)
    assert jax.tree.structure(mine) == jax.tree.structure(its)
    for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(its), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


TWO = {"power", "quotient", "maximum", "ties", "arctan2", "product", "tree"}


@pytest.mark.cpu
@pytest.mark.parametrize("name", AS_JAX)
def test_as_in_jax(name):
    primals, series = polynomials(2 if name in TWO else 1)
    with x64(True):
        check(*(jet.jet(AS_JAX[name](lib), primals, series) for lib, jet in LIBS))


def nested(f, x, terms):
    """The derivatives along a path, one jvp in the other."""
    def along(t):
        return f(x + sum(c * t**k / math.factorial(k) for k, c in enumerate(terms, 1)))

    found = []
    for _ in range(len(terms) + 1):
        found.append(toile.jit(along)(0.0))
        along = (lambda g: lambda t: toile.jvp(g, (t,), (1.0,))[1])(along)
    return found


@toile.custom_jvp
def doubled_slope(x):
    return jnp.sin(x)


doubled_slope.defjvp(lambda xs, dxs: (doubled_slope(*xs), 2 * jnp.cos(xs[0]) * dxs[0]))


@toile.custom_vjp
def backwards(x):
    return jnp.sin(x) * x


backwards.defvjp(lambda x: (backwards(x), x), lambda x, ct: (ct,))


def matrix(x):
    return jnp.outer(x, x) + jnp.diag(jnp.arange(1.0, 4.0))


# What JAX's jet has no rules for.
AS_NESTED = {
    "tan": jnp.tan,
    "softplus at zero": lambda x: toile.nn.softplus(x - x[0]),
    "relu": lambda x: toile.nn.relu(x - 0.5),
    "clip": lambda x: jnp.clip(x, 0.4, 0.6),
    "sort": jnp.sort,
    "prod": jnp.prod,
    "power at zero": lambda x: jnp.power(x - x[0], jnp.array([2.0, 3.0, 1.0])),
    "complex": lambda x: jnp.abs(jnp.exp(1j * x) * x + 1),
    "solve": lambda x: jnp.linalg.solve(matrix(x), x),
    "cholesky": lambda x: jnp.linalg.cholesky(matrix(x)),
    "eigenvalues": lambda x: jnp.linalg.eigvalsh(matrix(x)),
    "scan": lambda x: lax.scan(lambda c, y: (jnp.sin(c) * y, c + y), 0.5, x)[1],
    "constant scan": lambda x: lax.fori_loop(0, 3, lambda i, c: c * x + i, jnp.ones(3)),
    "while": lambda x: lax.while_loop(
        lambda s: s[1] < 3, lambda s: (x * s[0], s[1] + 1), (x, 0))[0],
    "cond": lambda x: lax.cond(x[0] > 0, lambda v: (v * v, 1), lambda v: (v, 2), x)[0],
    "checkpoint": toile.checkpoint(lambda x: jnp.sin(x) * x),
    "custom_jvp": doubled_slope,
    "staged custom_jvp": toile.jit(doubled_slope),
    "gradient": toile.grad(lambda x: jnp.sum(jnp.sin(x) * x)),
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", AS_NESTED)
def test_as_nested_jvp(name):
    (x,), (terms,) = polynomials(1, order=3)
    with x64(True):
        value, found = ours.jet(AS_NESTED[name], (x,), (terms,))
        wanted = nested(AS_NESTED[name], x, terms)
        for a, b in zip([value, *found], wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_functions_with_reverse_rules_only():
    (x,), (terms,) = polynomials(1)
    plain = ours.jet(lambda x: jnp.sin(x) * x, (x,), (terms,))
    check(ours.jet(backwards, (x,), (terms,)), plain, 1e-5)


@pytest.mark.parametrize("order", [0, 1, 8])
def test_orders(order):
    with x64(True):
        terms = [1.0] + [0.0] * (order - 1) if order else []
        value, found = ours.jet(lambda x: jnp.exp(2 * x), (0.25,), (terms,))
        np.testing.assert_allclose([value, *found], math.exp(0.5) * 2.0 ** np.arange(order + 1))


def test_coefficients_without_factorials():
    primals, series = polynomials(2)
    with x64(True):
        f = lambda l: lambda x, y: l.numpy.sin(x) * y
        check(*(jet.jet(f(lib), primals, series, factorial_scaled=False) for lib, jet in LIBS))
        check(ours.jet2(f(toile), primals, series),
              theirs.jet(f(jax), primals, series, factorial_scaled=False))
    np.testing.assert_allclose([ours.fact(n) for n in range(5)], [1, 1, 2, 6, 24], rtol=1e-5)


def test_numbers_and_dtypes():
    for x, terms in ((0.5, (1.0, 2.0)), (2, (1, 0)), (np.float32(0.5), (np.float32(1), 0.0))):
        check(*(jet.jet(lib.numpy.cos, (x,), (terms,)) for lib, jet in LIBS), 1e-5)
    half = np.ones(2, np.float16)
    assert [x.dtype for x in ours.jet(jnp.exp, (half,), ((half, half),))[1]] == ["float16"] * 2


def test_transformations_of_it():
    def second(x, v):
        """The second derivative along v."""
        return ours.jet(lambda x: jnp.sum(jnp.tanh(x) ** 3), (x,), ((v, jnp.zeros_like(v)),))[1][1]

    f = lambda x: jnp.sum(jnp.tanh(x) ** 3)
    by_hessian = lambda x, v: v @ toile.hessian(f)(x) @ v
    xs, vs = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    wanted = np.stack([by_hessian(x, v) for x, v in zip(xs, vs)])
    np.testing.assert_allclose(toile.vmap(second)(xs, vs), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(toile.jit(second)(xs[0], vs[0]), wanted[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(toile.jit(toile.grad(second))(xs[0], vs[0]),
                               toile.grad(by_hessian)(xs[0], vs[0]), rtol=1e-3, atol=1e-4)
    inner = lambda x: ours.jet(jnp.sin, (x,), ((1.0, 0.0),))[1][1]  # -sin
    _, (first, more) = ours.jet(inner, (0.3,), ((1.0, 0.0),))
    np.testing.assert_allclose([first, more], [-np.cos(0.3), np.sin(0.3)], rtol=1e-5)


REFUSED = {
    "inconsistent lengths": ((1.0, 2.0), ((1.0,), (1.0, 2.0))),
    "no arguments": ((), ()),
    "primal value at position 0 is not an array": (((1.0, 2.0),), ((1.0,),)),
    "term 1 for argument 0 is not an array": ((1.0,), ((1.0, [2.0]),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors(name):
    said = "inconsistent lengths" if name == "no arguments" else re.escape(name)
    for _, jet in LIBS:
        with pytest.raises(ValueError, match=said):
            jet.jet(lambda *xs: sum(xs), *REFUSED[name])


def test_terms_that_do_not_fit():
    with pytest.raises(ValueError, match="broadcast"):
        ours.jet(jnp.sin, (np.ones(3),), ((np.ones(2),),))
    with pytest.raises(TypeError, match="needed real terms for float32"):
        ours.jet(jnp.sin, (1.0,), ((1j,),))
    for _, jet in LIBS:
        with pytest.raises(TypeError):
            jet.jet(lambda n: n * n, (2,), ((1.0,),))


@pytest.mark.parametrize("name", ["add", "sub", "neg", "mul", "div", "reduce_sum"])
def test_integers_have_no_polynomials(name):
    n = np.array([1, 2], np.int32)
    given = (n,) if name in ("neg", "reduce_sum") else (n, n)
    f = (lambda n: lax.reduce_sum(n, (0,))) if name == "reduce_sum" else getattr(lax, name)
    with pytest.raises(TypeError, match=f"needed floating arguments, got int32.* from {name}"):
        ours.jet(f, given, tuple((x,) for x in given))
