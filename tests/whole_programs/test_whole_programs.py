"""Each whole program on both libraries: structures, dtypes, weak types, shapes and values agree.

jax is the oracle, by its recorded answers or, for a sample of the programs, for those that have
changed and for all with TOILE_TEST_ALL=1, asked again. Values agree to float32 roundoff, which a
program may widen where it iterates. What jax raises can be caught with the same except clauses.
"""

import jax
import numpy as np
import pytest

import toile
from tests import seeds
from tests.whole_programs import recording
from tests.whole_programs.registry import PROGRAMS


@pytest.fixture(scope="module")
def recorded():
    """The answers of jax that are on file."""
    return recording.load()


def agree(got, want, rtol, atol, what):
    """Assert that two leaves are the same kind of thing and close."""
    assert got.kind == want.kind, f"{what}: {got}, jax has {want}"
    if want.kind == "caught":
        ours, theirs = set(got.text.split(",")), set(want.text.split(","))
        assert theirs <= ours and bool(got.text) == bool(want.text), f"{what}: {got}, {want}"
    elif want.kind == "float":
        expected = pytest.approx(float(want.text), rel=rtol, abs=atol, nan_ok=True)
        assert float(got.text) == expected, what
    elif want.value is None:
        assert got.text == want.text, what
    else:
        assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, jax has {want.dtype}"
        assert got.weak == want.weak, f"{what}: weak type {got.weak}, jax has {want.weak}"
        assert got.value.shape == want.value.shape, f"{what}: shape {got.value.shape}"
        finite = np.abs(want.value[np.isfinite(want.value)])
        scale = np.max(finite, initial=1.0) if want.value.dtype.kind in "fc" else 1
        np.testing.assert_allclose(got.value, want.value, rtol, atol * scale, err_msg=what)


def compare(function, want):
    """Run a program on toile and hold it against an answer."""
    leaves, structure = recording.answer(toile, function)
    assert structure == want[1]
    for i, (a, b) in enumerate(zip(leaves, want[0], strict=True)):
        agree(a, b, function.rtol, function.atol, f"{function.__name__}, leaf {i}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function, recorded):
    """The program computes on toile what jax was recorded to compute."""
    known = recorded.get(recording.digest(function))
    compare(function, known or recording.answer(jax, function))


def asked_live():
    """All programs; those that are not in the sample of the day are marked slow."""
    today = seeds.day(seeds.today())
    for number, f in enumerate(PROGRAMS):
        sampled = (number + today) % 24 == 0  # some on each day
        yield pytest.param(f, id=f.__name__, marks=() if sampled else pytest.mark.slow)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", list(asked_live()))
def test_program_live(function):
    """The same against the jax that is installed."""
    compare(function, recording.answer(jax, function))
