"""Arrays without elements: nothing is computed for them, on the host or on a device."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from tests.compiler.test_python_steps import TARGETS, operations
from tests.gpu.fake_solvers import FakeCufft, FakeCusolver
from toile import lax, random
from toile.compiler.pipeline import optimize
from toile.compiler.plan.lower import planned
from toile.targets.cuda import cufft, cusolver

X = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
SQUARE = (X @ X.T + 4 * np.eye(4)).astype("f4")


def likelihood(x):
    """Solves of small matrices over time: blocks of their factors are empty."""
    def step(carry, y):
        return carry + jnp.sum(jnp.linalg.solve(x + y * jnp.eye(4), carry)), carry[0]

    return lax.scan(step, x[0], jnp.arange(1.0, 4.0))[1].sum()


CASES = {
    "elementwise": (lambda x: jnp.sin(x[:0]) + 1, X),
    "sum over nothing": (lambda x: x[:0].sum(0), X),
    "sum of nothing": (lambda x: x[:, :0].sum(0), X),
    "product of no numbers": (lambda x: x[:0].prod(0), X),
    "all of nothing": (lambda x: (x[:0] > 0).all(0), X),
    "any of nothing": (lambda x: (x[:0] > 0).any(), X),
    "maximum of none but a bound": (lambda x: x[:0].max(0, initial=-1.0), X),
    "maximum of nothing": (lambda x: x[:, :0].max(0), X),
    "product over nothing": (lambda x: x[:, :0] @ x[:0], X),
    "product of nothing": (lambda x: x[:0] @ x.T, X),
    "concatenated": (lambda x: jnp.concatenate([x, jnp.exp(x[:0])]), X),
    "sorted": (lambda x: jnp.sort(x[:, :0], axis=0), X),
    "gathered": (lambda x: x[jnp.zeros(0, int)], X),
    "scattered": (lambda x: x.at[jnp.zeros(0, int)].add(1.0), X),
    "an identity matrix": (lambda x: (x.sum(), jnp.eye(0)), X),
    "converted": (lambda x: (x[:0] > 0).astype("bfloat16"), X),
    "random": (lambda x: random.normal(random.key(0), (3, 0)) + x[:3, :0], X),
    "a scan over nothing": (lambda x: lax.scan(lambda c, y: (c + y, c), x[0], x[:0]), X),
    "a scan of nothing": (lambda x: lax.scan(lambda c, y: (c, c * y), x[0, :0], x[:, :0]), X),
    "a choice": (lambda x: jnp.where(x[:0] > 0, x[:0], 0.0), X),
    "solve": (lambda x: jnp.linalg.solve(x, x[:, :0]), SQUARE),
    "solves in a loop": (toile.grad(likelihood), SQUARE),
}


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    f, x = CASES[name]
    got, want = toile.jit(f)(x), f(jnp.asarray(x))
    toile.tree.map(lambda a, b: np.testing.assert_allclose(
        np.asarray(a, "f4"), np.asarray(b, "f4"), 2e-5, 1e-5), got, want)
    types = [[(a.dtype, a.shape) for a in toile.tree.leaves(x)] for x in (got, want)]
    assert types[0] == types[1]


@pytest.mark.parametrize("device", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_no_steps_in_python(name, device):
    """One such step, and a GPU's Program is no graph."""
    f, x = CASES[name]
    program = optimize(toile.make_jaxpr(f)(x).jaxpr)
    with cufft.use(FakeCufft()), cusolver.use(FakeCusolver()):
        plan = planned(program, TARGETS[device])
    assert not list(operations(plan))


def test_effects_stay():
    seen = []
    f = toile.jit(lambda x: toile.debug.callback(lambda y: seen.append(y.shape), x[:0]) or x[:0])
    assert f(X).shape == (0, 3)
    toile.effects_barrier()
    assert seen == [(0, 3)]
