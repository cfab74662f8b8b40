"""Projections, perturbations, assignments and curvature against Optax; then what they mean."""

import inspect

import numpy as np
import optax
import pytest
import scipy.optimize

import toile
import toile.numpy as jnp
from tests.optim import recorded
from tests.optim.test_losses import asked_live
from toile.optim import assignment, perturbations, projections, second_order

ROWS = recorded.of_table("projection_cases")


@pytest.fixture(scope="module")
def known():
    """The answers of Optax that are on file."""
    return recorded.load()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_function(row, known):
    """The function does on toile what Optax was recorded to do."""
    recorded.compare(row, known.get(recorded.digest(row)) or recorded.answer(row))


@pytest.mark.parametrize("row", list(asked_live(ROWS, 20)))
def test_function_live(row):
    """The same against the Optax that is installed."""
    recorded.compare(row, recorded.answer(row))


@pytest.mark.parametrize("name", ["projections", "perturbations", "assignment", "second_order"])
def test_names_and_signatures(name):
    """Optax's names, with its parameters and defaults."""
    ours = {"projections": projections, "perturbations": perturbations, "assignment": assignment,
            "second_order": second_order}[name]  # fmt: skip
    theirs = getattr(optax, name)
    assert sorted(ours.__all__) == [n for n in dir(theirs) if not n.startswith("_")]
    for each in ours.__all__:
        a, b = (inspect.signature(getattr(m, each)).parameters.values() for m in (ours, theirs))
        for p, q in zip(a, b, strict=True):
            assert (p.name, p.kind) == (q.name, q.kind)
            assert p.default == q.default or type(p.default).__name__ == type(q.default).__name__


@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (5, 9), (9, 5)])
@pytest.mark.parametrize("name", assignment.__all__)
def test_assignment_is_best(shape, name):
    """Against SciPy, and jitted."""
    solve = toile.jit(getattr(assignment, name))
    for seed in range(3):
        cost = recorded.normal(*shape, seed=seed)
        i, j = solve(cost)
        assert len(set(i.tolist())) == len(set(j.tolist())) == min(shape)
        best = cost[scipy.optimize.linear_sum_assignment(cost)].sum()
        np.testing.assert_allclose(cost[np.asarray(i), np.asarray(j)].sum(), best, rtol=1e-5)


def test_assignments_are_mapped():
    costs = recorded.normal(3, 4, 5)
    i, j = toile.vmap(assignment.hungarian_algorithm)(jnp.asarray(costs))
    for k in range(3):
        one = assignment.hungarian_algorithm(jnp.asarray(costs[k]))
        np.testing.assert_array_equal(i[k], one[0])
        np.testing.assert_array_equal(j[k], one[1])


INSIDE = {
    "projection_simplex": lambda p: (np.sum(p), 1.0, np.min(p) >= 0),
    "projection_l1_sphere": lambda p: (np.sum(np.abs(p)), 1.0, True),
    "projection_l1_ball": lambda p: (min(np.sum(np.abs(p)), 1.0), 1.0, True),
    "projection_l2_sphere": lambda p: (np.linalg.norm(p), 1.0, True),
    "projection_l2_ball": lambda p: (np.linalg.norm(p), 1.0, True),
}


@pytest.mark.parametrize("name", INSIDE)
def test_projection_is_idempotent(name):
    """A projection lies in the set, and projecting it changes nothing."""
    project = getattr(projections, name)
    once = project(jnp.asarray(3 * recorded.normal(6)))
    value, wanted, holds = INSIDE[name](np.asarray(once))
    assert value == pytest.approx(wanted, rel=1e-5) and holds
    np.testing.assert_allclose(project(once), once, atol=1e-6)


def test_perturbed_gradient_estimates_the_smooth_one():
    """E[relu(x + s z)] has the slope Phi(x / s) for normal z."""
    noise = perturbations.Normal()
    smooth = perturbations.make_perturbed_fun(lambda x: jnp.maximum(x, 0), 4000, 1.0, noise)
    x = jnp.array(0.5)
    slope = toile.grad(smooth, argnums=1)(toile.random.key(0), x)
    assert float(slope) == pytest.approx(0.6915, abs=0.05)
