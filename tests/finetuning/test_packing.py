"""Packed rows have the losses and gradients of separate examples."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import toile
import toile.numpy as jnp
from examples.language_model import gemma, gpt2, llama
from toile import random
from toile.finetuning import attention_mask, log_probs, pack, token_loss

TEXTS = [[5, 6, 7, 8], [9, 3], [2, 4, 6], [1], [8, 7, 6, 5, 4, 3]]
CONFIGS = {
    "llama": (llama, {"model_type": "llama", "vocab_size": 11, "hidden_size": 8,
                      "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2,
                      "intermediate_size": 12}),
    "window": (llama, {"model_type": "mistral", "vocab_size": 11, "hidden_size": 8,
                       "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 12,
                       "sliding_window": 2}),
    "gpt2": (gpt2, {"model_type": "gpt2", "vocab_size": 11, "n_embd": 8, "n_head": 2, "n_layer": 2,
                    "n_positions": 16}),
    "gemma": (gemma, {"model_type": "gemma", "vocab_size": 11, "hidden_size": 8, "head_dim": 4,
                      "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1,
                      "intermediate_size": 12}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("masked", [False, True])
def test_packed_rows_equal_separate_examples(name, masked):
    module, config = CONFIGS[name]
    model = module.model(config)
    params = model.init(random.key(0), jnp.zeros((1, 4), jnp.int32))
    flags = [[masked and i % 2 == 0 or not masked for i in range(len(t))] for t in TEXTS]
    examples = list(zip(TEXTS, flags, strict=True))

    def loss(params, rows):
        logits = model.apply(params, rows["tokens"], rows["segments"], rows["positions"])
        return token_loss(logits, rows["labels"])

    together, apart = pack(examples, 9), pack(examples, 9, together=False)
    assert len(together["tokens"]) == 2 and len(apart["tokens"]) == len(TEXTS)
    found, grads = toile.value_and_grad(loss)(params, together)
    expected, others = toile.value_and_grad(loss)(params, apart)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for x, y in zip(*map(toile.tree.leaves, (grads, others)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)
    # without the segments, tokens do attend to other examples
    mixed = {**together, "segments": (together["segments"] > 0).astype(np.int32)}
    assert name == "window" or abs(float(loss(params, mixed)) - float(expected)) > 1e-4
    # one example at a time, without packing
    total = count = 0
    for tokens, trained in examples:
        labels = np.where(trained, tokens, -100)
        scores = log_probs(model.apply(params, np.array([tokens])), labels[None])
        total, count = total - float(scores.sum()), count + int((labels[1:] >= 0).sum())
    np.testing.assert_allclose(total / count, expected, rtol=1e-5)


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=40, deadline=None)
def test_rows_contain_each_example_once(data):
    length = data.draw(st.integers(1, 12))
    token = st.integers(1, 50)
    examples = data.draw(st.lists(st.lists(token, max_size=15), max_size=12))
    rows = pack(examples, length, pad=99)
    found = []
    for i in range(len(rows["tokens"])):
        tokens, segments = rows["tokens"][i], rows["segments"][i]
        assert (np.diff(segments[segments > 0]) >= 0).all() and (tokens[segments == 0] == 99).all()
        used = int((segments > 0).sum())
        assert (segments[:used] > 0).all()
        for number in range(1, segments.max() + 1):
            place = segments == number
            assert (rows["positions"][i][place] == np.arange(place.sum())).all()
            labels = rows["labels"][i][place]
            assert labels[0] == -100 and (labels[1:] == tokens[place][1:]).all()
            found.append(tokens[place].tolist())
        assert (rows["labels"][i][segments == 0] == -100).all()
    assert sorted(found) == sorted(x[:length] for x in examples if x)
    least = -(-sum(map(len, found)) // length)
    assert least <= len(rows["tokens"]) <= 2 * least


@hypothesis.given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.booleans())
def test_masks_join_tokens_of_one_example(segments, causal):
    mask = np.asarray(attention_mask(np.array([segments]), causal=causal))
    for q, k in np.ndindex(*mask.shape[2:]):
        same = segments[q] == segments[k] > 0
        assert mask[0, 0, q, k] == (same and (k <= q or not causal))


def test_losses_ignore_labels():
    logits = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    labels = np.array([[3, 1, -100, 4], [0, -100, -100, 2]])
    scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    found = log_probs(logits, labels)
    expected = [[0, scores[0, 0, 1], 0, scores[0, 2, 4]], [0, 0, 0, scores[1, 2, 2]]]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(token_loss(logits, labels), -np.sum(expected) / 3, rtol=1e-5)
    nothing = np.full((2, 4), -100)
    assert token_loss(logits, nothing) == 0
    assert not np.isnan(toile.grad(lambda x: token_loss(x, nothing))(logits)).any()


@pytest.mark.parametrize(("call", "text"), [
    (lambda: pack([[1]], 0), "pack: needed a length of at least 1, got 0"),
    (lambda: pack([([1, 2], [True])], 4), r"got shapes \(2,\) and \(1,\) for example 0"),
    (lambda: log_probs(jnp.zeros((2, 3, 4)), jnp.zeros((2, 2), int)), r"got \(2, 3, 4\) and \(2"),
])
def test_errors(call, text):
    with pytest.raises(ValueError, match=text):
        call()
