"""Samplers equal NumPy, and have the properties that their names promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from toile import generation, jit, nn, random
from toile.generation import samplers

SIZE, ROWS, LENGTH = 9, 3, 6
LOGITS = st.lists(
    st.lists(st.floats(-20, 20, width=32), min_size=SIZE, max_size=SIZE), min_size=ROWS,
    max_size=ROWS,
).map(lambda x: np.array(x, np.float32))  # fmt: skip
TOKENS = st.lists(
    st.lists(st.integers(-1, SIZE - 1), min_size=LENGTH, max_size=LENGTH), min_size=ROWS,
    max_size=ROWS,
).map(lambda x: np.array(x, np.int32))  # fmt: skip
NONE = np.full((ROWS, LENGTH), -1, np.int32)
runs = jit(lambda sampler, logits, tokens: sampler(logits, tokens), max_traces=100)
some = settings(max_examples=60, deadline=None)


def run(sampler, logits, tokens=NONE):
    return np.asarray(runs(sampler, jnp.asarray(logits), jnp.asarray(tokens)))


def softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@some
@given(LOGITS, st.floats(0.01, 1.0))
def test_top_p_keeps_the_smallest_set(logits, p):
    out = run(generation.top_p(p), logits)
    for x, y in zip(logits, out, strict=True):
        kept, chances = np.isfinite(y), softmax(x)
        assert np.array_equal(y[kept], x[kept])
        assert chances[kept].sum() >= p - 1e-5
        assert not kept.all() or p <= 1
        least = x[kept].min()
        assert np.array_equal(kept, x >= least)  # all tokens above a threshold
        assert chances[x > least].sum() < p + 1e-5  # a smaller set does not reach p


@some
@given(LOGITS, st.integers(1, 2 * SIZE))
def test_top_k(logits, k):
    out = run(generation.top_k(k), logits)
    least = np.sort(logits, -1)[:, ::-1][:, min(k, SIZE) - 1][:, None]
    assert np.array_equal(out, np.where(logits >= least, logits, -np.inf))


@some
@given(LOGITS, st.floats(0, 1))
def test_min_p(logits, ratio):
    kept = np.isfinite(run(generation.min_p(ratio), logits))
    chances = softmax(logits)
    part = chances / chances.max(-1, keepdims=True)
    assert kept[part > ratio * (1 + 1e-4)].all() and not kept[part < ratio * (1 - 1e-4)].any()
    assert kept.any(-1).all()


@some
@given(LOGITS, TOKENS, st.floats(0.5, 3), st.floats(-2, 2), st.floats(-2, 2))
def test_penalties(logits, tokens, factor, presence, frequency):
    counts = np.array([[np.sum(row == t) for t in range(SIZE)] for row in tokens])
    less = np.where(logits > 0, logits / np.float32(factor), logits * np.float32(factor))
    out = run(generation.repetition_penalty(factor), logits, tokens)
    np.testing.assert_allclose(out, np.where(counts > 0, less, logits), rtol=1e-5, atol=1e-6)
    out = run(generation.occurrence_penalty(presence, frequency), logits, tokens)
    expected = logits - presence * (counts > 0) - frequency * counts
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@some
@given(LOGITS, st.floats(0.05, 5))
def test_temperature(logits, t):
    out = run(generation.temperature(t), logits)
    np.testing.assert_allclose(out, logits / np.float32(t), rtol=1e-6)
    best = run(generation.temperature(0.0), logits)
    assert np.array_equal(best.argmax(-1), logits.argmax(-1))
    assert np.array_equal(np.isfinite(best).sum(-1), np.ones(ROWS))
    assert np.array_equal(best, run(generation.greedy(), logits))


@some
@given(LOGITS, TOKENS)
def test_values_that_change_nothing(logits, tokens):
    neutral = generation.chain(
        generation.repetition_penalty(1.0), generation.occurrence_penalty(),
        generation.temperature(1.0), generation.top_k(SIZE), generation.top_p(1.0),
        generation.min_p(0.0),
    )  # fmt: skip
    assert np.array_equal(run(neutral, logits, tokens), logits)


@some
@given(LOGITS, TOKENS)
def test_chain_applies_in_order(logits, tokens):
    a, b = generation.temperature(0.3), generation.top_p(0.8)
    both = run(generation.chain(a, b), logits, tokens)
    assert np.array_equal(both, run(b, run(a, logits), tokens))
    nested = generation.chain(generation.chain(a), generation.chain(b))
    assert np.array_equal(both, run(nested, logits, tokens))


@some
@given(LOGITS, TOKENS, st.lists(st.floats(0.1, 0.9), min_size=ROWS, max_size=ROWS))
def test_a_value_for_each_row(logits, tokens, values):
    rows = np.array(values, np.float32)
    made = {
        "temperature": generation.temperature, "top_p": generation.top_p,
        "min_p": generation.min_p, "repetition_penalty": generation.repetition_penalty,
        "occurrence_penalty": generation.occurrence_penalty,
        "top_k": lambda x: generation.top_k((np.asarray(x) * 10).astype(np.int32)),
    }  # fmt: skip
    for name, make in made.items():
        together = run(make(rows), logits, tokens)
        for i in range(ROWS):
            alone = run(make(rows[i]), logits[i : i + 1], tokens[i : i + 1])
            np.testing.assert_array_equal(together[i : i + 1], alone, err_msg=name)


@pytest.mark.parametrize("make, value", [
    (generation.temperature, -0.1), (generation.temperature, float("nan")),
    (generation.top_k, 0), (generation.top_p, 0.0), (generation.top_p, 1.1),
    (generation.min_p, -0.1), (generation.min_p, 2), (generation.repetition_penalty, 0),
    (generation.occurrence_penalty, float("inf")), (generation.temperature, "1"),
    (generation.top_p, np.array([0.5, 1.5])),
])  # fmt: skip
def test_values_are_checked(make, value):
    with pytest.raises(ValueError, match="needed a number"):
        make(value)


def test_ties_are_kept():
    logits = jnp.log(jnp.array([[0.4, 0.2, 0.2, 0.2]]))
    for sampler in (generation.top_k(2), generation.top_p(0.5)):
        assert np.isfinite(run(sampler, logits, NONE[:1])).all()
    assert np.isclose(nn.softmax(logits).sum(), 1)


@pytest.mark.parametrize("sampler", [
    generation.greedy(), generation.chain(generation.top_k(3), generation.greedy()),
    generation.chain(generation.min_p(0.1), generation.chain(generation.greedy())),
])
def test_greedy_draws_compare_once(sampler):
    """NaN is the largest, and the first of equal logits is drawn, as by the sampler itself."""
    logits = jnp.array([[1.0, 3.0, 3.0, 2.0], [0.0, jnp.nan, 5.0, jnp.nan], [-jnp.inf] * 4])
    tokens, keys = jnp.zeros((3, 2), jnp.int32), random.split(random.key(0), 3)
    drawn = lambda x: samplers.draw(sampler, keys, x, tokens)
    assert drawn(logits).tolist() == sampler(logits, tokens).argmax(-1).tolist()
    assert str(toile.make_jaxpr(drawn)(logits)).count("= argmax") == 1
