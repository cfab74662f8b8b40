"""Schedules against Optax: values over steps of each type, slopes, weak types; then errors."""

import inspect

import numpy as np
import optax
import pytest

import toile
import toile.numpy as jnp
from tests.optim import recorded
from tests.optim.test_losses import asked_live
from toile.optim import schedules

ROWS = recorded.of_table("schedule_cases")


@pytest.fixture(scope="module")
def known():
    """The answers of Optax that are on file."""
    return recorded.load()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_schedule(row, known):
    """The schedule gives on toile what Optax was recorded to give."""
    recorded.compare(row, known.get(recorded.digest(row)) or recorded.answer(row))


@pytest.mark.parametrize("row", list(asked_live(ROWS, 16)))
def test_schedule_live(row):
    """The same against the Optax that is installed."""
    recorded.compare(row, recorded.answer(row))


def test_names_and_signatures():
    """Optax's names, with its parameters and defaults."""
    functions = {"exponential_decay", "join_schedules"}
    functions |= {n for n in dir(optax.schedules) if n.endswith("_schedule") and n[0] != "_"}
    assert set(schedules.__all__) == {n for n in dir(optax.schedules) if n[0] != "_"}
    for name in functions:
        both = (inspect.signature(getattr(m, name)) for m in (schedules, optax.schedules))
        ours, theirs = ([(p.name, p.kind, p.default) for p in s.parameters.values()] for s in both)
        assert ours == theirs, name


CONSTANT = {
    "linear": lambda S: S.linear_schedule(0.5, 1.0, 0),
    "polynomial": lambda S: S.polynomial_schedule(0.5, 1.0, 2, -1),
    "exponential_steps": lambda S: S.exponential_decay(0.5, 0, 0.9),
    "exponential_rate": lambda S: S.exponential_decay(0.5, 10, 0),
    "constant": lambda S: S.constant_schedule(0.5),
    "piecewise": lambda S: S.piecewise_constant_schedule(0.5),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_degenerate(name):
    """Without a transition the value is the first one, the Python number itself."""
    assert CONSTANT[name](schedules)(7) == CONSTANT[name](optax.schedules)(7) == 0.5


def test_interpolation_of_nothing():
    assert float(schedules.piecewise_interpolate_schedule("linear", 0.5)(3)) == 0.5


WRONG = {
    "cosine": lambda S: S.cosine_decay_schedule(1.0, 0),
    "negative": lambda S: S.piecewise_constant_schedule(1.0, {3: -1.0}),
    "negative_interpolated": lambda S: S.piecewise_interpolate_schedule("linear", 1.0, {3: -1.0}),
    "curve": lambda S: S.piecewise_interpolate_schedule("square", 1.0, {3: 1.0}),
    "linear_onecycle": lambda S: S.linear_onecycle_schedule(0, 1.0),
    "cosine_onecycle": lambda S: S.cosine_onecycle_schedule(-1, 1.0),
    "warmup": lambda S: S.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name):
    """What Optax refuses is refused, with the same class of error."""
    with pytest.raises(ValueError):
        WRONG[name](optax.schedules)
    with pytest.raises(ValueError, match="needed"):
        WRONG[name](schedules)


def test_large_steps():
    """Step counts beyond 32 bits."""
    schedule = schedules.cosine_decay_schedule(1.0, 10**10)
    assert float(schedule(5 * 10**9)) == pytest.approx(0.5)
    assert float(toile.jit(schedule)(jnp.int32(0))) == 1.0


def test_schedule_is_traced_once():
    """A schedule inside a jitted loop depends on the step as data."""
    schedule = schedules.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)
    traces = []

    @toile.jit
    def rate(step):
        traces.append(step)
        return schedule(step)

    steps = range(0, 110, 10)
    got = [float(rate(jnp.int32(step))) for step in steps]
    np.testing.assert_allclose(got, [float(schedule(step)) for step in steps], rtol=1e-6)
    assert len(traces) == 1
