"""The decoders of the example language_model work with `generate` as they are."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from examples.language_model import gemma, gpt2, llama
from toile import generation, random

SIZES = {
    "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 32, "head_dim": 4, "sliding_window": 5,
    "tie_word_embeddings": False,
}  # fmt: skip
CONFIGS = {
    "llama": (llama, {"model_type": "llama", **SIZES}),
    "mistral": (llama, {"model_type": "mistral", **SIZES}),
    "gpt2": (gpt2, {"model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 2,
                    "n_head": 4, "n_positions": 128}),
    "gemma": (gemma, {"model_type": "gemma", "hidden_activation": "gelu_pytorch_tanh", **SIZES}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_tokens_equal_full_forward_passes(name):
    package, config = CONFIGS[name]
    model = package.model(config)
    made = model.init(random.key(0), jnp.zeros((1, 4), jnp.int32))
    # Larger parameters, whose tokens depend on the past.
    variables = {"params": toile.tree.map(lambda x: 3 * x, made["params"])}
    prompts = [[3, 1, 4, 1, 5, 9, 2], [7], list(range(12, 32))]
    out = generation.generate(model, variables, prompts, max_tokens=6)
    full = toile.jit(lambda tokens: model.apply(variables, tokens[None])[0])
    for prompt, one in zip(prompts, out, strict=True):
        tokens = list(prompt)
        for _ in range(6):
            padded = np.pad(tokens, (0, 32 - len(tokens)))
            tokens.append(int(full(padded)[len(tokens) - 1].argmax()))
        assert one.tokens == tokens[len(prompt) :]
        assert len(set(one.tokens)) > 1
    draft = generation.Draft(model, variables, 2)
    assert generation.generate(model, variables, prompts, max_tokens=6, draft=draft) == out
