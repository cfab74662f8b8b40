"""The architectures: caches, padding, windows, folders that are written and read, completions."""

import functools

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.interop import huggingface

from . import generate, layers, models, t5

DECODER = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
}  # fmt: skip
ENCODER = {**DECODER, "max_position_embeddings": 40, "type_vocab_size": 2}
CONFIGS: dict[str, dict] = {
    "llama": {**DECODER, "attention_bias": True},
    "mistral": {**DECODER, "sliding_window": 3},
    "qwen2": {**DECODER, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "qwen3": {**DECODER, "tie_word_embeddings": True},
    "gpt2": {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40},
    "gemma": DECODER,
    "gemma2": {**DECODER, "sliding_window": 3},
    "gemma3_text": {**DECODER, "sliding_window": 3, "sliding_window_pattern": 2},
    "bert": {**ENCODER, "architectures": ["BertForMaskedLM"]},
    "bert with all heads": {**ENCODER, "architectures": ["BertForPreTraining"]},
    "roberta": {**ENCODER, "pad_token_id": 1, "architectures": ["RobertaForMaskedLM"]},
    "t5": {"vocab_size": 50, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 3},
}
CAUSAL = [name for name in CONFIGS if not name.startswith(("bert", "roberta", "t5"))]
TOKENS = np.random.default_rng(0).integers(3, 50, (2, 9)).astype(np.int32)


@functools.cache
def made(name):
    """A random model, its variables and its configuration."""
    config = {"model_type": name.split()[0], **CONFIGS[name]}
    model = models.architecture(config).model(config)
    inputs = (TOKENS, TOKENS) if name == "t5" else (TOKENS,)
    variables = model.init(toile.random.key(0), *inputs)
    keys = toile.random.split(toile.random.key(1), len(toile.tree.leaves(variables)))
    leaves, structure = toile.tree.flatten(variables)
    noisy = [x + 0.2 * toile.random.normal(k, x.shape) for k, x in zip(keys, leaves)]
    return model, toile.tree.unflatten(structure, noisy), config


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_cache_changes_nothing(name):
    model, variables, _ = made(name)
    whole = model.apply(variables, TOKENS)
    cache = generate.empty_cache(model, variables, TOKENS)
    found = []
    for tokens in (TOKENS[:, :4], TOKENS[:, 4:5], TOKENS[:, 5:]):
        logits, changed = model.apply(
            {**variables, "cache": cache}, tokens, decode=True, mutable=["cache"]
        )
        cache = changed["cache"]
        found.append(logits)
    close(np.concatenate(found, axis=1), whole)
    assert model.apply(variables, TOKENS, last=True).shape == (2, 1, 50)


@pytest.mark.parametrize("name", CAUSAL)
def test_the_future_and_padding_change_nothing(name):
    model, variables, _ = made(name)
    whole = model.apply(variables, TOKENS)
    close(model.apply(variables, TOKENS[:, :5]), whole[:, :5])
    padded, mask = generate.padded([TOKENS[0].tolist(), TOKENS[1, :4].tolist()], pad=7)
    close(model.apply(variables, padded, mask)[1, 5:], whole[1, :4])
    padded, mask = padded[:, ::-1], mask[:, ::-1]  # padding on the right
    padded = np.where(mask, TOKENS, 7)
    close(model.apply(variables, padded, mask)[1, :4], whole[1, :4])


@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
def test_a_window_hides_the_distant_past(name):
    model, variables, _ = made(name)
    other = TOKENS.copy()
    other[:, 0] += 1
    change = np.abs(model.apply(variables, other) - model.apply(variables, TOKENS)).max((0, 2))
    reach = 4 if name == "mistral" else 8  # two layers of a window of 3, or one and a full one
    assert (change[: reach + 1] > 1e-5).all() and (change[reach + 1 :] < 1e-5).all()


@pytest.mark.parametrize("name", ["bert", "bert with all heads", "roberta"])
def test_encoders_ignore_padding(name):
    model, variables, _ = made(name)
    short = model.apply(variables, TOKENS[:, :5]).logits
    padded = np.where(np.arange(9) < 5, TOKENS, 1)
    close(model.apply(variables, padded, padded != 1).logits[:, :5], short)


def test_an_answer_is_what_repeated_calls_without_a_cache_choose():
    model, variables, _ = made("t5")
    mask = np.arange(9) < np.array([[9], [6]])
    tokens = np.zeros((2, 1), np.int32)
    for _ in range(5):
        logits = model.apply(variables, TOKENS, tokens, mask)
        tokens = np.concatenate([tokens, np.argmax(logits[:, -1:], axis=-1)], axis=1)
    got = generate.answer(model, variables, jnp.asarray(TOKENS), jnp.asarray(mask), steps=5)
    assert got.tolist() == tokens[:, 1:].tolist()


def test_buckets_of_distances_grow():
    buckets = t5.bucket_table(32, 128)
    assert buckets[:17].tolist() == list(range(17))
    assert (np.diff(buckets) >= 0).all() and buckets[-1] == 31 and len(buckets) == 129


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_that_is_written_is_read(name, tmp_path):
    _, variables, config = made(name)
    table = models.architecture(config).table(config)
    huggingface.save(tmp_path, variables, config, table)
    model, again, read = models.load(tmp_path, dtype="bfloat16")
    assert read["model_type"] == config["model_type"] and read["dtype"] == "float32"
    want = toile.tree.map(lambda x: x.astype("bfloat16"), variables)
    toile.tree.map(np.testing.assert_array_equal, again, want)
    if name in CAUSAL:
        tokens = generate.complete(model, again, jnp.asarray(TOKENS), None, steps=2)
        assert tokens.shape == (2, 2)


LLAMA3 = {
    "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3",
}  # fmt: skip


def decoder(kind, vocabulary, features, mlp, layers, heads, kv_heads, depth, **more):
    """The entries of config.json that decoders have in common."""
    return {
        "model_type": kind, "vocab_size": vocabulary, "hidden_size": features,
        "intermediate_size": mlp, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": depth, **more,
    }  # fmt: skip


def encoder(kind, vocabulary, longest, types, **more):
    """The entries of config.json of the base size of BERT."""
    return {
        "model_type": kind, "architectures": [f"{kind.title()}Model"], "vocab_size": vocabulary,
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "max_position_embeddings": longest, "type_vocab_size": types,
        **more,
    }  # fmt: skip


def seq2seq(features, mlp, layers, heads, **more):
    """The entries of config.json of T5."""
    return {
        "model_type": "t5", "vocab_size": 32128, "d_model": features, "d_kv": 64, "d_ff": mlp,
        "num_layers": layers, "num_heads": heads, **more,
    }  # fmt: skip


GPT2 = {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
TIED = {"tie_word_embeddings": True}


@pytest.mark.parametrize("config, parameters", [
    (GPT2, 124_439_808),
    (decoder("llama", 128256, 2048, 8192, 16, 32, 8, 64, rope_theta=5e5, rope_scaling=LLAMA3,
             **TIED), 1_235_814_400),
    (decoder("mistral", 32000, 4096, 14336, 32, 32, 8, None), 7_241_732_096),
    (decoder("qwen2", 151936, 896, 4864, 24, 14, 2, None, **TIED), 494_032_768),
    (decoder("qwen3", 151936, 1024, 3072, 28, 16, 8, 128, **TIED), 596_049_920),
    (decoder("gemma", 256000, 2048, 16384, 18, 8, 1, 256, hidden_act="gelu"), 2_506_172_416),
    (decoder("gemma2", 256000, 2304, 9216, 26, 8, 4, 256), 2_614_341_888),
    (encoder("bert", 30522, 512, 2), 109_482_240),
    (encoder("roberta", 50265, 514, 1, pad_token_id=1), 124_645_632),
    (seq2seq(512, 2048, 6, 8), 60_506_624),
    (seq2seq(768, 2048, 12, 12, **GATED), 247_577_856),
])  # fmt: skip
def test_published_models_have_their_numbers_of_parameters(config, parameters):
    model = models.architecture(config).model(config)
    tokens = jnp.zeros((1, 2), jnp.int32)
    inputs = (tokens, tokens) if hasattr(model, "encode") else (tokens,)
    shapes = toile.eval_shape(model.init, toile.random.key(0), *inputs)["params"]
    assert sum(x.size for x in toile.tree.leaves(shapes)) == parameters


def test_dropout_is_for_training():
    for name in ("gpt2", "bert", "t5"):
        model, variables, _ = made(name)
        inputs = (TOKENS, TOKENS) if name == "t5" else (TOKENS,)
        run = functools.partial(model.apply, variables, *inputs)
        still = toile.tree.leaves(run())[0]
        moved = toile.tree.leaves(run(train=True, rngs={"dropout": toile.random.key(0)}))[0]
        assert np.abs(moved - still).max() > 1e-3


def test_attention_in_parts_is_that_of_the_library():
    keys = toile.random.split(toile.random.key(3), 4)
    query = toile.random.normal(keys[0], (2, 5, 4, 6))
    key, value = (toile.random.normal(k, (2, 7, 2, 6)) for k in keys[1:3])
    mask, bias = toile.random.bernoulli(keys[3], 0.7, (2, 1, 5, 7)), jnp.ones((1, 4, 5, 7))
    whole = layers.attend(query, key, value, mask, bias, scale=0.3)
    close(layers.attend(query, key, value, mask, bias, scale=0.3, cap=1e4), whole)
    kept = layers.attend(query, key, value, mask, bias, dropout=1e-9, rng=keys[0], scale=0.3)
    close(kept, whole)


def test_settings_that_no_file_implements_are_errors():
    with pytest.raises(ValueError, match="needed one of bert, gemma.* got 'mamba'"):
        models.architecture({"model_type": "mamba"})
    with pytest.raises(ValueError, match="needed default, linear or llama3"):
        layers.frequencies({"rope_scaling": {"type": "yarn", "factor": 2.0}}, 8)


def test_old_and_new_names_of_rotary_settings():
    old = {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}}
    assert layers.frequencies(old, 8) == layers.frequencies(new, 8)


def test_completions_of_texts(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from . import main

    _, variables, config = made("llama")
    table = models.architecture(config).table(config)
    words = {"<pad>": 0, "<s>": 1, "<e>": 2} | {f"w{i}": i for i in range(3, 50)}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    raw.save(str(tmp_path / "tokenizer.json"))
    huggingface.save(tmp_path, variables, {**config, "eos_token_id": 2}, table)
    found = main.completions(tmp_path, ["w3 w4 w5", "w7"], 4)
    for prompt, text in zip(([3, 4, 5], [7]), found, strict=True):
        tokens, mask = map(jnp.asarray, generate.padded([prompt]))
        model = models.architecture(config).model(config)
        alone = generate.complete(model, variables, tokens, mask, steps=4, ends=(2,))
        want = generate.until(alone[0].tolist(), (2,))
        assert [words[word] for word in text.split()] == want
