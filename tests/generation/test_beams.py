"""Beam search with enough beams finds what an exhaustive search finds."""

import numpy as np
import pytest

from tests.generation.models import MODELS, Table, next_logits
from tests.generation.models import variables_of as v
from toile import generation


def log_softmax(x):
    x = np.asarray(x, np.float64)
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


def exhaustive(logits, prompt, length, stops, penalty):
    """All continuations, with their scores; `logits(tokens)` are those of the next token."""
    found, live = [], {(): 0.0}
    for step in range(1, length + 1):
        longer = {}
        for tokens, total in live.items():
            chances = log_softmax(logits([*prompt, *tokens]))
            for token, chance in enumerate(chances):
                if token not in stops:
                    longer[*tokens, token] = total + chance
            if stops:
                end = np.log(np.exp(chances[list(stops)]).sum())
                found.append((list(tokens), (total + end) / step**penalty, "stop"))
        live = longer
    found += [(list(t), total / length**penalty, "length") for t, total in live.items()]
    return sorted(found, key=lambda one: -one[1])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stops", [(), (1,), (0, 2)])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_exhaustive_search(seed, stops, penalty):
    table = Table(2 * np.random.default_rng(seed).normal(size=(4, 4)))
    prompts = [[0], [1, 2], [3, 3, 3]]
    out = generation.beam_search(
        table, {}, prompts, max_tokens=3, beams=64, stop_tokens=stops, length_penalty=penalty
    )
    for prompt, beams in zip(prompts, out, strict=True):
        logits = lambda tokens: table.logits[tokens[-1]]
        expected = exhaustive(logits, prompt, 3, stops, penalty)
        np.testing.assert_allclose(
            [b.score for b in beams], [e[1] for e in expected[:64]], atol=1e-5
        )
        by_tokens = {(tuple(e[0]), e[2]): e[1] for e in expected}
        assert len({(tuple(b.tokens), b.reason) for b in beams}) == len(beams)
        for b in beams:
            assert b.score == pytest.approx(by_tokens[tuple(b.tokens), b.reason], abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_caches_follow_their_beams(name):
    model = MODELS[name]
    prompts = [[3, 1, 4], list(range(12))]
    out = generation.beam_search(
        model, v(model), prompts, max_tokens=6, beams=5, length_penalty=0.0
    )
    for prompt, beams in zip(prompts, out, strict=True):
        assert len(beams) == 5 and beams == sorted(beams, key=lambda b: -b.score)
        for beam in beams:
            tokens, total = list(prompt), 0.0
            for token in beam.tokens:
                total += log_softmax(next_logits(model, v(model), tokens))[token]
                tokens.append(token)
            assert beam.score == pytest.approx(total, abs=1e-3)
    greedy = generation.generate(model, v(model), prompts, max_tokens=6)
    single = generation.beam_search(model, v(model), prompts, max_tokens=6, beams=1)
    assert [b[0].tokens for b in single] == [one.tokens for one in greedy]


def test_search_ends_early():
    """The search ends when no unfinished beam can become better."""
    logits = np.full((3, 3), -30.0)
    logits[:, 2] = 0.0
    found = generation.beam_search(
        Table(logits), {}, [[0]], max_tokens=10_000, beams=1, stop_tokens=[2]
    )
    assert found == [[generation.Beam([], pytest.approx(0, abs=1e-6), "stop")]]
