"""Drawn calls: those that were wrong once, and a sample; TOILE_TEST_ALL=1 runs more.

`python -m tests.drawn SUBJECT --seed 5` runs others of one subject.
"""

from __future__ import annotations

import pytest

from tests import seeds
from tests.drawn import arrays, calls, chains, found, modules, optimizers, transforms

SUBJECTS = {"arrays": arrays, "chains": chains, "modules": modules, "optimizers": optimizers,
            "transforms": transforms}
# How a case is examined: without JAX, by shapes only, or whole.
ALONE, SHAPES, WHOLE = calls.examine_alone, calls.examine_shapes, calls.examine
# How many cases run, and how many where everything is tested.
SAMPLES = {("chains", ALONE): (8, 1000), ("arrays", ALONE): (8, 300), ("arrays", SHAPES): (20, 240),
           ("transforms", ALONE): (3, 100)}
SEED = 1  # those of other seeds are for the command: each has one that rounds in its own way
RUNS = [(subject, examine, i) for (subject, examine), (few, many) in SAMPLES.items()
        for i in range(many if seeds.EVERYTHING else few)]


@pytest.mark.parametrize("case", found.CASES, ids=str)
def test_found(case):
    """What was wrong once is right."""
    assert not calls.examine(case)


@pytest.mark.parametrize(("subject", "examine", "index"), RUNS,
                         ids=[f"{s}-{e.__name__}-{i}" for s, e, i in RUNS])
def test_sample(subject, examine, index):
    """A drawn case agrees with JAX, or with itself run in other ways."""
    family, case = SUBJECTS[subject].draw(SEED, index)
    wrong = examine(case)
    assert not wrong, f"{family} {index} of seed {SEED}: {case}: {wrong}"


def test_every_family_is_drawn():
    """Each family of each subject has its place in some case, and cases repeat."""
    for subject in (arrays, modules, optimizers, transforms):
        drawn = [subject.draw(1, i) for i in range(600)]
        assert {name for name, _ in drawn} == set(subject.FAMILIES)
        assert str(subject.draw(1, 7)[1]) == str(drawn[7][1])


def test_differences_are_seen():
    """The comparison sees values, dtypes, weak types, shapes, signs and errors that differ."""
    one, two = calls.np.float32([1, 2]), calls.np.float32([1, 2.001])
    zero = calls.np.float32([0.0])
    raised = calls.Raised(ValueError("x"))
    assert calls.difference(one, one) is None
    assert calls.difference(one, two) is not None
    assert calls.difference(one, one.astype("float64")) is not None
    assert calls.difference(one, one[:1]) is not None
    assert calls.difference((one,), (one, one)) is not None
    assert calls.difference(zero, -zero) is None
    assert calls.difference(zero, -zero, zeros=True) is not None
    assert calls.difference(raised, one) is not None
    assert calls.difference(calls.Raised(TypeError("x")), raised) is not None
    assert calls.difference(raised, raised) is None
    jnp = calls.toile.numpy
    assert calls.difference(jnp.asarray(1.0), jnp.float32(1)) is not None
