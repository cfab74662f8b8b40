"""Soft prompts: additional tokens whose embeddings are trained."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from examples.language_model import llama
from tests.finetuning.test_lora import operations
from toile import generation, optim, random, training
from toile.finetuning import SoftPrompt, lora, merge_adapters
from toile.finetuning.token_losses import token_loss
from toile.training.train_state import TrainState

CONFIG = {"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "num_attention_heads": 2,
          "num_key_value_heads": 1, "num_hidden_layers": 2, "intermediate_size": 12,
          "tie_word_embeddings": True}
TOKENS = np.array([[4, 9, 2], [3, 3, 1]])


def models():
    base = llama.model(CONFIG)
    model = SoftPrompt(base, vocabulary=11, features=8, length=3)
    return base, model, model.init(random.key(0), model.with_prompt(TOKENS))


def test_rows_of_the_table_as_prompt():
    base, model, variables = models()
    params = variables["params"]
    words = np.array([7, 0, 10])
    table = params["model"]["embedding"]["embedding"]
    params = {**params, "prompt": table[words]}
    found = model.apply({"params": params}, model.with_prompt(TOKENS))
    rows = np.concatenate([np.broadcast_to(words, (2, 3)), TOKENS], axis=1)
    expected = base.apply({"params": params["model"]}, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.shape == (2, 6, 11)


def test_only_the_prompt_is_trained():
    _, model, variables = models()
    rows = model.with_prompt(TOKENS)
    labels = jnp.where(rows < 11, rows, -100)

    def loss(params):
        return token_loss(model.apply({"params": params}, rows), labels)

    state = TrainState.create(apply_fn=model.apply, params=variables["params"],
                              tx=optim.adam(0.1), trainable="prompt")
    first, grads = training.value_and_grad(loss, state)
    assert [x.shape for x in toile.tree.leaves(grads)] == [(3, 8)]
    for _ in range(5):
        state = state.apply_gradients(grads=training.value_and_grad(loss, state)[1])
    assert loss(state.params) < first
    assert state.params["model"] == variables["params"]["model"] or all(
        (a == b).all() for a, b in zip(toile.tree.leaves(state.params["model"]), toile.tree.leaves(
            variables["params"]["model"]), strict=True))
    # the backward pass has the products for inputs, but not those for weights
    forward = operations(loss, state.params)
    frozen = operations(lambda s: training.value_and_grad(loss, s), state)
    whole = operations(lambda p: toile.value_and_grad(loss)(p), state.params)
    assert frozen < 2.2 * forward < 2.8 * forward < whole


@pytest.mark.parametrize("adapted", [False, True])
def test_generation(adapted):
    base, model, variables = models()
    if adapted:
        changed = lora(variables, "**/kernel", key=random.key(1), rank=2)
        variables = toile.tree.map(lambda x: x + 0.05, changed)
    prompts = [model.with_prompt(np.array(p)).tolist() for p in ([4, 9], [3, 3, 1, 5])]
    found = generation.generate(model, variables, prompts, max_tokens=4)
    plain = merge_adapters(variables)
    for prompt, row in zip(prompts, found, strict=True):
        tokens = list(prompt)
        for _ in range(4):
            tokens.append(int(model.apply(plain, np.array([tokens]))[0, -1].argmax()))
        assert row.tokens == tokens[len(prompt):]
