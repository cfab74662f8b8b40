"""The decoders of the example language_model work with `generate` as they are."""

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from examples.language_model import gemma, gpt2, llama
from toile import generation, random
from toile.generation import prompts as reading
from toile.quantization import quantize
from toile.serving import BatchEngine, Generation, Settings

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


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_the_cache_has_the_dtype_in_which_the_model_computes(name, quantized):
    package, config = CONFIGS[name]
    model = package.model(config)
    made = model.init(random.key(0), jnp.zeros((1, 4), jnp.int32))
    params = toile.tree.map(lambda x: (3 * x).astype(jnp.bfloat16), made["params"])
    variables = {"params": quantize(params, bits=8) if quantized else params}
    decoder, prompts = generation.ModuleDecoder(model), [[3, 1, 4, 1, 5], [7, 8]]
    cache = reading.read(decoder, variables, prompts, 16)
    floats = {x.dtype for x in toile.tree.leaves(cache) if jnp.issubdtype(x.dtype, jnp.floating)}
    assert floats == {jnp.dtype(jnp.bfloat16)}
    out = generation.generate(model, variables, prompts, max_tokens=4)
    full = toile.jit(lambda tokens: model.apply(variables, tokens[None])[0])
    for prompt, one in zip(prompts, out, strict=True):
        logits = full(jnp.asarray([*prompt, *one.tokens])).astype(jnp.float32)
        for i, token in enumerate(one.tokens, len(prompt) - 1):  # likely, up to rounding
            assert logits[i, token] >= logits[i].max() - 0.1 * jnp.abs(logits[i]).max()
    engine = BatchEngine(model, variables, slots=2, longest=16)
    one = Generation(prompts[0], Settings(max_tokens=3, temperature=0.0))
    engine.submit([one])
    tokens = []
    while True:
        new, reason = one.get()
        tokens += new
        if reason:
            break
    engine.close()
    assert reason == "length" and len(tokens) == 3
