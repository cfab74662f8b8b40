"""Sums over repeated values are products."""

import ml_dtypes
import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.compiler.pipeline import optimize

X = np.random.default_rng(0).normal(size=(6, 5)).astype("f4")
half = lambda f: toile.grad(lambda x: (lambda r: (r * r).sum() / 2)(f(x)))

# name: function, whether a sum is left
CASES = {
    "tile": (half(lambda x: jnp.tile(x, (2, 3))), False),
    "repeat": (half(lambda x: jnp.repeat(x, 3, axis=1)), False),
    "tile of each": (toile.vmap(half(lambda x: jnp.tile(x, (2, 3)))), False),
    "repeat of each": (toile.vmap(half(lambda x: jnp.repeat(x, 3, axis=0))), False),
    "tile of each twice": (toile.vmap(toile.vmap(half(lambda x: jnp.tile(x, 4)))), False),
    "broadcast": (lambda x: jnp.broadcast_to(x, (7, 6, 5)).sum(0), False),
    "broadcast in the middle": (lambda x: jnp.exp(jnp.broadcast_to(
        x[:, None], (6, 4, 5))).sum(1), False),
    "some of the axes": (lambda x: jnp.sin(jnp.broadcast_to(x, (7, 6, 5))).sum((0, 2)), True),
    "several operands": (lambda x: (jnp.broadcast_to(x, (3, 6, 5)) * jnp.broadcast_to(
        x[0], (3, 6, 5)) + 2).sum(0), False),
    "one that does not repeat": (lambda x: (jnp.broadcast_to(x[0], (6, 5)) * x).sum(0), True),
    "a result as well": (lambda x: (lambda y: (y, y.sum(0)))(jnp.exp(jnp.broadcast_to(
        x, (3, 6, 5)))), False),
    "read twice": (lambda x: (lambda y: (jnp.sin(y), y.sum(0)))(jnp.exp(jnp.broadcast_to(
        x, (3, 6, 5)))), True),
    "a number": (lambda x: jnp.broadcast_to(x[0, 0], (8, 8)).sum(), True),
    "integers that wrap": (lambda x: jnp.broadcast_to(
        (x * 100).astype("int8"), (300, 6, 5)).sum(0, dtype="int8"), False),
    "bfloat16": (lambda x: jnp.broadcast_to(
        x.astype(ml_dtypes.bfloat16), (64, 6, 5)).sum(0), None),
    "complex": (lambda x: jnp.broadcast_to(x + 1j, (3, 6, 5)).sum(0), True),
}


@pytest.mark.parametrize("name", CASES)
def test_sums(name):
    f, left = CASES[name]
    got, want = toile.jit(f)(X), f(jnp.asarray(X))
    toile.tree.map(lambda a, b: np.testing.assert_allclose(
        np.asarray(a, "c16"), np.asarray(b, "c16"), 3e-6, 1e-6), got, want)
    types = [[(a.dtype, a.shape) for a in toile.tree.leaves(x)] for x in (got, want)]
    assert types[0] == types[1]
    program = optimize(toile.make_jaxpr(f)(X).jaxpr)
    if left is not None:
        assert any(e.op.sums_axes for e in program.equations) == left


# name: function; nothing is computed after a broadcast
ONCE = {
    "conversion": lambda x: jnp.broadcast_to(x[0] * 2, (6, 5)).astype("int32"),
    "gradient of a sum": toile.grad(
        lambda x: (x.astype("float32").sum(0) ** 2).sum().astype("float32")),
    "several": lambda x: jnp.exp(jnp.broadcast_to(x[0] + 1, (4, 5)) * 2) - jnp.broadcast_to(
        x[1] * 3, (4, 5)),
    "other axes": lambda x: jnp.broadcast_to(x[:, 0:1] * 2, (7, 6, 5)) * jnp.broadcast_to(
        x + 1, (7, 6, 5)),
    "numbers": lambda x: jnp.where(jnp.broadcast_to(x[0] * 2, (6, 5)) > 0, 1.0, 2.0),
}


@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_that_repeat_are_computed_once(name, dtype):
    f, x = ONCE[name], jnp.asarray(X.astype(dtype))
    np.testing.assert_allclose(np.asarray(toile.jit(f)(x), "f8"), np.asarray(f(x), "f8"),
                               2e-6 if dtype == "float32" else 2e-2)
    program = optimize(toile.make_jaxpr(f)(x).jaxpr)
    last = program.equations[-1]
    assert last.op.name == "broadcast_in_dim" and last.outs == program.outputs


def test_inputs_are_not_computed_apart():
    """The kernel that reads a broadcast input also computes what follows."""
    f = lambda x: jnp.exp(jnp.broadcast_to(x, (7, 6, 5))) * 2
    assert len(toile.explain(f)(X).kernels) == 1


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -0.0, 1e-45])
def test_special_numbers(value):
    f = lambda x: jnp.broadcast_to(x, (4, 3)).sum(0)
    x = np.full(3, value, "f4")
    np.testing.assert_array_equal(toile.jit(f)(x), f(jnp.asarray(x)))


def test_a_number_of_terms_that_the_dtype_lacks():
    """1025 is not a bfloat16 number: the sum stays."""
    f = lambda x: toile.lax.reduce_sum(jnp.broadcast_to(x, (1025, 3)), (0,))
    x = np.ones(3, ml_dtypes.bfloat16)
    assert any(e.op.sums_axes for e in optimize(toile.make_jaxpr(f)(x).jaxpr).equations)
