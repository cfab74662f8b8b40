"""Losses against Optax: values, dtypes, weak types, gradients; then jit, vmap and errors.

Optax answers by its record, or live for a sample and for all with TOILE_TEST_ALL=1."""

import inspect

import numpy as np
import optax
import pytest

import toile
import toile.numpy as jnp
from tests import seeds
from tests.optim import recorded
from toile.optim import losses

ROWS = recorded.of_table("loss_cases")


@pytest.fixture(scope="module")
def known():
    """The answers of Optax that are on file."""
    return recorded.load()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_loss(row, known):
    """The loss does on toile what Optax was recorded to do."""
    recorded.compare(row, known.get(recorded.digest(row)) or recorded.answer(row))


def asked_live(rows, one_in):
    """All rows; those outside the sample of the day are marked slow, and the narrow ones,
    which jax runs operation by operation."""
    for row in rows:
        sampled = seeds.is_chosen(row.name, one_in) and not row.narrow
        yield pytest.param(row, id=row.name, marks=() if sampled else pytest.mark.slow)


@pytest.mark.parametrize("row", list(asked_live(ROWS, 16)))
def test_loss_live(row):
    """The same against the Optax that is installed."""
    recorded.compare(row, recorded.answer(row))


STAGED = [row for row in ROWS if row.staged and row.args and not row.narrow]


@pytest.mark.parametrize("row", STAGED, ids=lambda row: row.name)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_loss_staged(row):
    """Under jit a loss is what it is without."""
    lib = recorded.library("toile", "toile.optim")
    want, got = row.run(lib, *row.args), toile.jit(lambda *a: row.run(lib, *a))(*row.args)
    for x, y in zip(toile.tree.leaves(got), toile.tree.leaves(want), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)


def test_names_and_signatures():
    """Optax's names with its parameters and defaults; those of its top level among them."""
    assert sorted(losses.__all__) == [n for n in dir(optax.losses) if not n.startswith("_")]
    for name in losses.__all__:
        ours = inspect.signature(getattr(losses, name)).parameters.values()
        theirs = inspect.signature(getattr(optax.losses, name)).parameters.values()
        same = lambda x: x if isinstance(x, (int, float, str, type(None))) else x.__class__
        found, wanted = ([(p.name, p.kind, same(p.default)) for p in ps] for ps in (ours, theirs))
        callables = (callable(p.default) and p.default is not p.empty for p in ours)
        for a, b, called in zip(found, wanted, callables, strict=True):
            assert a == b or called, (name, a, b)


WRONG = {
    "integers": (TypeError, lambda L: L.squared_error(np.arange(3))),
    "shapes": (ValueError, lambda L: L.squared_error(np.ones(3, "f4"), np.ones(1, "f4"))),
    "perceptron": (ValueError, lambda L: L.perceptron_loss(np.ones((2, 1)), np.ones((2, 2)))),
    "float_labels": (
        TypeError,
        lambda L: L.softmax_cross_entropy_with_integer_labels(np.ones((2, 3), "f4"), np.ones(2)),
    ),
    "axis": (
        ValueError,
        lambda L: L.softmax_cross_entropy_with_integer_labels(np.ones((2, 3), "f4"), 1, axis=2),
    ),
    "axis_type": (
        ValueError,
        lambda L: L.softmax_cross_entropy_with_integer_labels(np.ones(3, "f4"), 1, axis=None),
    ),
    "bits": (TypeError, lambda L: L.sigmoid_binary_cross_entropy(np.ones(3, int), np.ones(3))),
    "targets": (TypeError, lambda L: L.kl_divergence(np.zeros(3, "f4"), np.ones(3, int))),
    "reduction": (
        ValueError,
        lambda L: L.dice_loss(np.ones((1, 2, 2), "f4"), np.ones((1, 2, 2), "f4"), reduction="max"),
    ),
    "not_probabilities": (
        ValueError,
        lambda L: L.dice_loss(np.ones((1, 2, 2)), np.ones((1, 2, 2)), apply_softmax=False),
    ),
    "batch": (ValueError, lambda L: L.ntxent(np.ones((3, 2), "f4"), np.ones(2, int))),
    "ctc_rank": (
        ValueError,
        lambda L: L.ctc_loss(np.ones((2, 3)), np.ones(2), np.ones((2, 1), int), np.ones((2, 1))),
    ),
    "ctc_paddings": (
        ValueError,
        lambda L: L.ctc_loss(
            np.ones((2, 3, 4), "f4"), np.ones((2, 2)), np.ones((2, 1), int), np.ones((2, 1))
        ),
    ),
    "ctc_batch": (
        ValueError,
        lambda L: L.ctc_loss(
            np.ones((2, 3, 4), "f4"), np.ones((2, 3)), np.ones((3, 1), int), np.ones((3, 1))
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    """What Optax refuses is refused, with the same class of error and a text that names it."""
    error, call = WRONG[name]
    with pytest.raises(error):
        call(optax.losses)
    with pytest.raises(error, match="needed|out of bounds"):
        call(losses)


def test_convex_kl_divergence_is_deprecated():
    with pytest.warns(DeprecationWarning, match="generalized_kl_divergence"):
        losses.convex_kl_divergence(jnp.zeros(2), jnp.ones(2))


def test_ctc_is_the_sum_over_paths():
    """Against every alignment of three frames, one by one."""
    logits = jnp.asarray(recorded.normal(1, 3, 3))
    logp = np.asarray(toile.nn.log_softmax(logits))[0]
    total = 0.0
    for path in np.ndindex(3, 3, 3):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c] == [1, 2]:
            total += np.exp(sum(logp[t, c] for t, c in enumerate(path)))
    loss = losses.ctc_loss(logits, jnp.zeros((1, 3)), jnp.array([[1, 2]]), jnp.zeros((1, 2)))
    np.testing.assert_allclose(loss[0], -np.log(total), rtol=1e-5)


def test_losses_are_mapped():
    """vmap over examples is the batched loss."""
    x, y = jnp.asarray(recorded.normal(4, 5)), jnp.array([0, 4, 2, 2])
    for name in ("softmax_cross_entropy_with_integer_labels", "multiclass_hinge_loss"):
        loss = getattr(losses, name)
        np.testing.assert_allclose(toile.vmap(loss)(x, y), loss(x, y), rtol=1e-6)


def test_simplex_gradient_in_bfloat16():
    """Optax has none: its rule gives another dtype."""
    x = jnp.array([[1.0, 2.0, 2.5]], jnp.bfloat16)
    slope = toile.grad(lambda x: losses.multiclass_sparsemax_loss(x, jnp.array([0])).sum())(x)
    assert slope.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(slope, "f4"), [[-1.0, 0.25, 0.75]], atol=1e-2)
