"""`generate` and `stream` equal a Python loop over full forward passes, for every kind of cache."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from tests.generation.models import (
    MODELS,
    VOCABULARY,
    Model,
    StoredPositions,
    Table,
    next_logits,
    plain,
)
from tests.generation.models import variables_of as v
from toile import generation, random
from toile import linen as nn
from toile.compiler.pipeline import optimize
from toile.generation import prompts as reading
from toile.generation import sampling_loop
from toile.generation.decoders import last_logits

PROMPTS = [[3, 1, 4], list(range(20)), [7], [5, 9] * 12, [2, 7]]
SAMPLER = generation.chain(
    generation.repetition_penalty(1.3), generation.temperature(0.8), generation.top_p(0.9)
)


def tokens_of(completions):
    return [completion.tokens for completion in completions]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_equals_plain_loop(name):
    model = MODELS[name]
    out = generation.generate(model, v(model), PROMPTS, max_tokens=12)
    assert tokens_of(out) == [plain(model, v(model), p, 12) for p in PROMPTS]
    assert {one.reason for one in out} == {"length"} and {one.text for one in out} == {None}


@pytest.mark.parametrize("name", ["stored positions", "counted", "single tokens"])
def test_sampling_equals_plain_loop(name):
    model, keys = MODELS[name], random.split(random.key(5), len(PROMPTS))
    out = generation.generate(model, v(model), PROMPTS, max_tokens=12, sampler=SAMPLER, key=keys)
    expected = [plain(model, v(model), p, 12, SAMPLER, k) for p, k in zip(PROMPTS, keys)]
    assert tokens_of(out) == expected


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40), min_size=1, max_size=4
    ),
    st.integers(0, 2**31 - 1),
)
def test_batches_equal_single_prompts(prompts, seed):
    model, keys = MODELS["stored positions"], random.split(random.key(seed), len(prompts))
    options = {"max_tokens": 6, "sampler": SAMPLER}
    out = generation.generate(model, v(model), prompts, key=keys, **options)
    for i, prompt in enumerate(prompts):
        alone = generation.generate(model, v(model), [prompt], key=keys[i : i + 1], **options)
        assert alone == out[i : i + 1]


def test_one_key_makes_a_key_for_each_row():
    model = MODELS["stored positions"]
    options = {"max_tokens": 8, "sampler": generation.temperature(2.0)}
    same = generation.generate(model, v(model), [[1, 2]] * 3, key=random.key(0), **options)
    assert len({tuple(one.tokens) for one in same}) == 3
    again = generation.generate(model, v(model), [[1, 2]] * 3, key=random.key(0), **options)
    other = generation.generate(model, v(model), [[1, 2]] * 3, key=random.key(1), **options)
    assert same == again != other
    old = generation.generate(model, v(model), [[1, 2]] * 3, key=random.PRNGKey(0), **options)
    assert old == same


def test_draws_have_the_distribution_of_the_sampler():
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]]))
    sampler = generation.top_p(0.9)
    rows = 4000
    out = generation.generate(
        Table(logits), {}, [[0]] * rows, max_tokens=1, sampler=sampler, key=random.key(2)
    )
    found = np.bincount([one.tokens[0] for one in out], minlength=4) / rows
    np.testing.assert_allclose(found, [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0], atol=0.03)


@pytest.mark.parametrize("chunk", [8, 16])
def test_prompts_are_read_in_chunks(chunk):
    model = MODELS["stored positions"]
    long = [[i * 7 % VOCABULARY for i in range(n)] for n in (61, 17, 9, 8, 1, 33)]
    caches = [
        reading.read(generation.ModuleDecoder(model), v(model), long, 72, size)[1]
        for size in (chunk, 512)
    ]
    first, second = (toile.tree.leaves_with_path(cache) for cache in caches)
    for (path, x), (_, y) in zip(first, second, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5, err_msg=str(path))
    positions = caches[0]["Layer_0"]["StoredPositions_0"]["cached_positions"]
    for row, prompt in zip(np.asarray(positions), long, strict=True):
        assert row.tolist() == [*range(len(prompt)), *[-1] * (72 - len(prompt))]


@pytest.mark.parametrize("chunk", [8, 512])
@pytest.mark.parametrize("name", MODELS)
def test_reading_gives_the_logits_after_each_prompt(name, chunk):
    model = MODELS[name]
    prompts = [[i * 7 % VOCABULARY for i in range(n)] for n in (9, 1, 16, 8, 15, 2)]
    logits, _ = reading.read(generation.ModuleDecoder(model), v(model), prompts, 24, chunk)
    for row, prompt in zip(np.asarray(logits), prompts, strict=True):
        np.testing.assert_allclose(row, next_logits(model, v(model), prompt), 1e-4, 1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_computed_for_the_last_tokens_only(name):
    decoder = generation.ModuleDecoder(MODELS[name])
    cache, variables = decoder.empty(4, 64), v(MODELS[name])
    read = lambda tokens: last_logits(decoder, variables, cache, tokens, tokens)
    program = optimize(toile.make_jaxpr(read)(jnp.zeros((4, 64), jnp.int32)).jaxpr)
    sizes = [e.outs[0].aval.size for e in _equations(program) if e.outs
             and e.outs[0].aval.shape[-1:] == (VOCABULARY,)]
    assert max(sizes) == 4 * VOCABULARY


def _equations(program):
    inner = [e for q in program.equations for p in q.op.programs() for e in _equations(optimize(p))]
    return [*program.equations, *inner]


def test_the_first_token_needs_no_step():
    model, count = MODELS["counted"], sampling_loop.advance._cache_size
    before = count()
    out = generation.generate(model, v(model), PROMPTS, max_tokens=1)
    first = next(iter(generation.stream(model, v(model), PROMPTS[1:], max_tokens=7)))
    assert count() == before
    assert tokens_of(out) == [plain(model, v(model), p, 1) for p in PROMPTS]
    assert first.tokens == out[1].tokens


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("draft", [None, generation.Draft(MODELS["counted"],
                                                          v(MODELS["counted"], 1), 2)])
def test_rows_that_end_with_the_first_token(draft, every):
    model = MODELS["stored positions"]
    stop = plain(model, v(model), PROMPTS[0], 1)
    options = {"max_tokens": [9, 1, 9, 1, 9], "stop_tokens": stop, "draft": draft}
    out = generation.generate(model, v(model), PROMPTS, **options)
    assert out[0] == generation.Completion([], "stop")
    assert tokens_of(out) == [plain(model, v(model), p, n, stop=stop)
                              for p, n in zip(PROMPTS, options["max_tokens"], strict=True)]
    tokens = [[], [], [], [], []]
    for piece in generation.stream(model, v(model), PROMPTS, every=every, **options):
        tokens[piece.row] += piece.tokens
    assert tokens == tokens_of(out)


@given(st.integers(1, 100_000))
def test_little_padding(count):
    size = reading.rounded(count)
    assert count <= size < count + 8 or size <= 1.125 * count
    assert reading.rounded(size) == size


def test_stop_tokens():
    model = MODELS["stored positions"]
    free = plain(model, v(model), PROMPTS[0], 12)
    stop = free[5]
    out = generation.generate(model, v(model), PROMPTS, max_tokens=12, stop_tokens=[stop, 999])
    for one, prompt in zip(out, PROMPTS, strict=True):
        expected = plain(model, v(model), prompt, 12, stop=[stop])
        assert one.tokens == expected
        assert one.reason == ("length" if len(expected) == 12 else "stop")
    assert out[0].reason == "stop" and out[0].tokens == free[: free.index(stop)]


def test_limits_for_each_row():
    model = MODELS["counted"]
    out = generation.generate(model, v(model), PROMPTS, max_tokens=[1, 5, 3, 9, 2])
    assert [len(one.tokens) for one in out] == [1, 5, 3, 9, 2]
    assert tokens_of(out) == [
        plain(model, v(model), p, n) for p, n in zip(PROMPTS, [1, 5, 3, 9, 2], strict=True)
    ]


def letters(tokens):
    """Two letters for each token, so that stop strings begin and end within tokens."""
    return "".join("ab cd ef gh ij kl mn op qr st uv wx yz AB CD EF GH IJ KL MN OP QR ST UV"
                   .split()[t] for t in tokens)


@pytest.mark.parametrize("every", [1, 3, 50])
def test_stop_strings_across_tokens(every):
    model = MODELS["stored positions"]
    free = [plain(model, v(model), p, 30) for p in PROMPTS]
    text = letters(free[1])
    stop = text[9:14]  # begins and ends within a token
    options = {"max_tokens": 30, "stop_strings": [stop, "never"], "decode": letters}
    out = generation.generate(model, v(model), PROMPTS, **options)
    for one, tokens in zip(out, free, strict=True):
        full = letters(tokens)
        assert one.text == full.partition(stop)[0]
        assert one.reason == ("stop" if stop in full else "length")
        assert one.tokens == tokens[: len(one.tokens)] and one.text in letters(one.tokens)
    assert out[1].reason == "stop"
    texts, reasons = {}, {}
    for piece in generation.stream(model, v(model), PROMPTS, every=every, **options):
        assert piece.row not in reasons
        texts[piece.row] = texts.get(piece.row, "") + piece.text
        if piece.reason:
            reasons[piece.row] = piece.reason
    assert [texts[i] for i in range(5)] == [one.text for one in out]
    assert [reasons[i] for i in range(5)] == [one.reason for one in out]


@pytest.mark.parametrize("every", [1, 4, 100])
def test_stream_yields_the_same_tokens(every):
    model = MODELS["counted"]
    options = {"max_tokens": [9, 4, 11, 2, 7], "sampler": SAMPLER, "key": random.key(3)}
    pieces = list(generation.stream(model, v(model), PROMPTS, every=every, **options))
    for row, one in enumerate(generation.generate(model, v(model), PROMPTS, **options)):
        own = [piece for piece in pieces if piece.row == row]
        assert sum((piece.tokens for piece in own), []) == one.tokens
        assert all(len(piece.tokens) <= every for piece in own)
        assert [piece.reason for piece in own] == [None] * (len(own) - 1) + ["length"]


@pytest.mark.parametrize("window", [3, 10])
def test_ring_cache_of_sliding_window(window):
    model = Model(StoredPositions, options=(("window", window),))
    prompts = [[i * 5 % VOCABULARY for i in range(n)] for n in (90, 3)]
    assert generation.ModuleDecoder(model).rings
    out = generation.generate(model, v(model), prompts, max_tokens=20, window=window)
    assert tokens_of(out) == [plain(model, v(model), p, 20) for p in prompts]
    draft = generation.Draft(model, v(model, 1), 3)
    again = generation.generate(model, v(model), prompts, max_tokens=20, window=window, draft=draft)
    assert again == out


def test_ring_is_smaller_than_the_text(monkeypatch):
    sizes = []
    empty = reading.empty_cache
    monkeypatch.setattr(
        reading, "empty_cache", lambda *args: sizes.append(args[-1]) or empty(*args)
    )
    model = Model(StoredPositions, options=(("window", 10),))
    generation.generate(model, v(model), [[1] * 180], max_tokens=40, window=10)
    assert sizes == [80]


def test_programs_are_compiled_once():
    model, count = MODELS["stored positions"], sampling_loop.advance._cache_size
    one = lambda t, n: generation.generate(
        model, v(model), PROMPTS[:3], max_tokens=n, sampler=generation.temperature(t)
    )
    one(0.5, 10)
    before = count()
    one(0.7, 11)
    one(2.0, 12)
    assert count() == before


def test_user_functions_are_samplers():
    model = MODELS["counted"]

    def even(logits, tokens):
        return jnp.where(jnp.arange(logits.shape[-1]) % 2 == 0, logits, -jnp.inf)

    out = generation.generate(model, v(model), PROMPTS, max_tokens=20, sampler=even)
    assert all(token % 2 == 0 for one in out for token in one.tokens)


class NoCache(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(4)(nn.Embed(4, 4)(tokens))


def _calls():
    model = MODELS["stored positions"]
    run = lambda *args, **options: generation.generate(model, {}, *args, **options)
    return {
        "no prompts": (lambda: run([], max_tokens=3), ValueError, "at least one prompt"),
        "empty prompt": (lambda: run([[1], []], max_tokens=3), ValueError, "as prompt 1"),
        "text": (lambda: run("text", max_tokens=3), TypeError, "tokenize texts first"),
        "one list": (lambda: run([1, 2], max_tokens=3), ValueError, "as prompt 0"),
        "negative": (lambda: run([[-1]], max_tokens=3), ValueError, "as prompt 0"),
        "floats": (lambda: run([[1.5]], max_tokens=3), ValueError, "as prompt 0"),
        "no tokens": (lambda: run([[1]], max_tokens=0), ValueError, "max_tokens=0"),
        "limits": (lambda: run([[1]], max_tokens=[1, 2]), ValueError, "each of 1 prompts"),
        "no decode": (
            lambda: run([[1]], max_tokens=1, stop_strings="x"), ValueError, "tokenizer.decode"),
        "stop texts": (lambda: run([[1]], max_tokens=1, stop_tokens=["x"]), ValueError,
                       "stop_strings"),
        "no cache": (lambda: generation.generate(NoCache(), {}, [[1]], max_tokens=1),
                     ValueError, "NoCache, which creates none"),
        "no decoder": (lambda: generation.generate(len, {}, [[1]], max_tokens=1),
                       TypeError, "needed a linen module"),
        "no ring": (lambda: generation.generate(MODELS["counted"], {}, [[1]], max_tokens=1,
                                                window=3), ValueError, "stores positions"),
        "sampler": (lambda: run([[1]], max_tokens=1, sampler=0.7), TypeError, "temperature(0.7)"),
        "every": (lambda: generation.stream(model, {}, [[1]], max_tokens=1, every=0),
                  ValueError, "every=0"),
        "draft": (lambda: generation.Draft(model, {}, 0), ValueError, "count=0"),
        "beams": (lambda: generation.beam_search(model, {}, [[1]], max_tokens=1, beams=0),
                  ValueError, "beams=0"),
    }  # fmt: skip


@pytest.mark.parametrize("name", _calls())
def test_messages(name):
    call, kind, words = _calls()[name]
    with pytest.raises(kind) as error:
        call()
    assert words in str(error.value)
