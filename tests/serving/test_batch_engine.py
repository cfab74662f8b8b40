"""Continuous batching gives each prompt the tokens that it has alone."""

import random as python_random

import pytest

from tests.generation.models import Table, plain, variables_of
from tests.serving.clients import MODEL, OTHER, engine
from toile import random
from toile.generation import prompts as reading
from toile.serving import BatchEngine, Busy, Generation, Settings
from toile.training.text import END


def collect(one):
    tokens = []
    while True:
        new, reason = one.get(timeout=60)
        tokens += new
        if reason:
            return tokens, reason


def mixed(count, seed=0):
    """Prompts and settings of all kinds."""
    made = python_random.Random(seed)
    out = []
    for i in range(count):
        prompt = [made.randrange(2, 258) for _ in range(made.randrange(1, 60))]
        out.append((prompt, Settings(
            max_tokens=made.randrange(1, 30), temperature=made.choice([0.0, 0.7, 1.5]),
            top_k=made.choice([0, 5]), top_p=made.choice([1.0, 0.8]), seed=i,
            min_p=made.choice([0.0, 0.05]), repetition_penalty=made.choice([1.0, 1.3]),
            presence_penalty=made.choice([0.0, 0.5]),
        )))  # fmt: skip
    return out


@pytest.mark.parametrize("model", [MODEL, OTHER], ids=["stored positions", "counted"])
def test_rows_in_a_batch_equal_single_ones(model, monkeypatch):
    monkeypatch.setattr(reading, "CHUNK", 16)  # long prompts are read between the steps of others
    used = engine(model)
    try:
        alone = []
        for prompt, settings in mixed(12):
            one = Generation(prompt, settings)
            used.submit([one])
            alone.append(collect(one))
        together = [Generation(*both) for both in mixed(12)]
        for one in together:
            used.submit([one])
        assert [collect(one) for one in together] == alone
        assert used.status() == {"ok": True, "running": 0, "waiting": 0, "slots": 4}
    finally:
        used.close()


def test_tokens_equal_a_plain_loop():
    used = engine()
    try:
        for prompt, settings in mixed(6, seed=1):
            one = Generation(prompt, Settings(settings.max_tokens, temperature=0.0))
            used.submit([one])
            tokens, reason = collect(one)
            free = plain(MODEL, variables_of(MODEL), prompt, settings.max_tokens, stop=[END])
            assert tokens == free
            assert reason == ("length" if len(free) == settings.max_tokens else "stop")
        warm = Settings(20, temperature=1.2, seed=7)
        one = Generation([5, 6], warm)
        used.submit([one])
        sampler = lambda logits, tokens: logits / 1.2
        expected = plain(
            MODEL, variables_of(MODEL), [5, 6], 20, sampler, random.PRNGKey(7), stop=[END]
        )
        assert collect(one)[0] == expected
    finally:
        used.close()


def test_queue_is_limited():
    used = engine(slots=1, waiting=2, longest=64)
    try:
        running = [Generation([1], Settings(60)) for _ in range(3)]
        used.submit(running)
        with pytest.raises(Busy, match="prompts are waiting"):
            used.submit([Generation([1], Settings(1)) for _ in range(3)])
        assert all(one.get(timeout=60) for one in running)
    finally:
        used.close()


def test_cancelled_rows_leave_the_batch():
    table = Table([[0.0, 9.0], [9.0, 0.0]])
    used = BatchEngine(table, {}, slots=1, longest=50_000)
    try:
        first, second = Generation([0], Settings(40_000)), Generation([0], Settings(3, 0.0))
        waiting = Generation([0], Settings(40_000))
        used.submit([first, waiting, second])
        assert first.get(timeout=60)[0]
        waiting.cancel()
        first.cancel()
        assert collect(second) == ([1, 0, 1], "length")
        assert collect(first)[1] == collect(waiting)[1] == "cancelled"
    finally:
        used.close()


def test_close_ends_everything():
    used = engine(slots=1)
    all_ = [Generation([1, 2], Settings(90)) for _ in range(4)]
    used.submit(all_)
    used.close()
    assert {collect(one)[1] for one in all_} <= {"cancelled", "length", "stop"}
    with pytest.raises(Busy):
        used.submit([Generation([1], Settings(1))])


class Failing(Table):
    def apply(self, variables, cache, tokens, positions):
        raise ValueError("this model fails")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_failure_of_the_model_ends_requests():
    used = BatchEngine(Failing([[0.0]]), {}, slots=2, longest=8)
    one = Generation([0], Settings(2))
    used.submit([one])
    assert collect(one) == ([], "error")
    assert used.status()["ok"] is False
    with pytest.raises(Busy, match="this model fails"):
        used.submit([Generation([0], Settings(2))])
    used.close()


@pytest.mark.parametrize("options", [{"slots": 0}, {"longest": 1}, {"waiting": 0}])
def test_sizes_are_checked(options):
    with pytest.raises(ValueError, match="needed a number from"):
        BatchEngine(MODEL, {}, **options)


def test_lengths_are_checked():
    used = engine(longest=20)
    try:
        for prompt, most in (([], 1), ([1] * 20, 1), ([1], 20)):
            with pytest.raises(ValueError, match="2 to 20 tokens"):
                used.submit([Generation(prompt, Settings(most))])
    finally:
        used.close()
