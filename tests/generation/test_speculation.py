"""Speculative decoding does not change the distribution of the tokens."""

import itertools

import numpy as np
import pytest
from scipy import stats

from tests.generation.models import MODELS, Table, plain
from tests.generation.models import variables_of as v
from toile import generation, random

PROMPTS = [[3, 1, 4], list(range(20)), [7], [5, 9] * 12]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [1, 4])
def test_greedy_tokens_are_the_same(name, count):
    model = MODELS[name]
    expected = generation.generate(model, v(model), PROMPTS, max_tokens=12)
    for seed in (0, 1):  # the model itself, which always agrees, and another one, which seldom does
        draft = generation.Draft(model, v(model, seed), count)
        assert generation.generate(
            model, v(model), PROMPTS, max_tokens=12, draft=draft
        ) == expected  # fmt: skip


def test_a_draft_of_another_kind():
    model, other = MODELS["stored positions"], MODELS["single tokens, scan"]
    out = generation.generate(
        model, v(model), PROMPTS, max_tokens=15, draft=generation.Draft(other, v(other), 3)
    )
    assert [one.tokens for one in out] == [plain(model, v(model), p, 15) for p in PROMPTS]


def tables(seed, size=4):
    made = np.random.default_rng(seed)
    return Table(1.5 * made.normal(size=(size, size))), Table(1.5 * made.normal(size=(size, size)))


def chances(table, sampler, length):
    """The exact probability of each sequence after token 0."""
    size = len(table.logits)
    out = {}
    for tokens in itertools.product(range(size), repeat=length):
        chance, before = 1.0, [0]
        for token in tokens:
            logits = sampler(table.logits[before[-1]][None], np.array([before]))[0]
            logits = np.asarray(logits, np.float64)
            e = np.exp(logits - logits.max())
            chance *= (e / e.sum())[token]
            before.append(token)
        out[tokens] = chance
    total = sum(out.values())  # the samplers compute in float32
    return {tokens: chance / total for tokens, chance in out.items()}


@pytest.mark.parametrize("seed, sampler", [
    (0, generation.temperature(1.0)),
    (1, generation.chain(generation.temperature(0.7), generation.top_p(0.8))),
    (2, generation.chain(generation.repetition_penalty(1.8), generation.top_k(3))),
])  # fmt: skip
@pytest.mark.parametrize("count", [1, 2, 4])
def test_distribution_is_the_same(seed, sampler, count):
    model, draft = tables(seed)
    rows, length = 6000, 3
    out = generation.generate(
        model, {}, [[0]] * rows, max_tokens=length, sampler=sampler, key=random.key(seed),
        draft=generation.Draft(draft, {}, count),
    )  # fmt: skip
    found = {}
    for one in out:
        found[tuple(one.tokens)] = found.get(tuple(one.tokens), 0) + 1
    exact = chances(model, sampler, length)
    assert all(exact[tokens] > 0 for tokens in found)
    often = [t for t, p in exact.items() if p * rows >= 5]
    observed = [found.get(t, 0) for t in often]
    rest = rows - sum(observed)
    expected = [exact[t] * rows for t in often]
    left = rows - sum(expected)
    if left > 1:
        observed, expected = [*observed, rest], [*expected, left]
    expected = np.array(expected) * (sum(observed) / sum(expected))
    assert stats.chisquare(observed, expected).pvalue > 1e-4


def test_a_wrong_distribution_is_found():
    """The test above can fail: the tokens of the draft model have another distribution."""
    model, draft = tables(0)
    out = generation.generate(draft, {}, [[0]] * 6000, max_tokens=1, sampler=lambda x, _: x)
    found = np.bincount([one.tokens[0] for one in out], minlength=4)
    exact = chances(model, lambda x, _: x, 1)
    assert stats.chisquare(found, 6000 * np.array([exact[t,] for t in range(4)])).pvalue < 1e-4


def test_stop_tokens_and_limits():
    model, draft = tables(3)
    options = {"max_tokens": [1, 2, 7, 20], "stop_tokens": [2]}
    expected = generation.generate(model, {}, [[0], [1], [3], [0, 1]], **options)
    for count in (1, 3, 6):
        out = generation.generate(
            model, {}, [[0], [1], [3], [0, 1]], draft=generation.Draft(draft, {}, count), **options
        )
        assert out == expected


def test_batches_equal_single_prompts():
    model = MODELS["stored positions"]
    keys = random.split(random.key(0), len(PROMPTS))
    draft = generation.Draft(model, v(model, 1), 3)
    options = {"max_tokens": 10, "sampler": generation.temperature(1.0), "draft": draft}
    out = generation.generate(model, v(model), PROMPTS, key=keys, **options)
    for i, prompt in enumerate(PROMPTS):
        alone = generation.generate(model, v(model), [prompt], key=keys[i : i + 1], **options)
        assert alone == out[i : i + 1]


def test_vocabularies_must_agree():
    with pytest.raises(ValueError, match="the same vocabulary"):
        generation.generate(
            Table(np.eye(3)), {}, [[0]], max_tokens=4, draft=generation.Draft(Table(np.eye(4)), {})
        )
