"""Tests of the recipes: short runs of each, from a small base model, and the files they save."""

import json
from typing import Any

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile import finetuning, random
from toile.interop import huggingface

from . import input_pipeline, models, train
from .configs import default, tiny

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
         "num_key_value_heads": 1, "intermediate_size": 24}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder for the base model."""
    return tmp_path_factory.mktemp("base")


@pytest.fixture
def sources(base, monkeypatch):
    """Short texts in place of the included ones, and the folder of the base model."""
    rng = np.random.default_rng(0)
    line = lambda: " ".join(rng.choice(WORDS, 20))
    texts = ["\n".join(line() for _ in range(4)) for _ in range(24)]
    for name in ("topics", "library"):
        monkeypatch.setattr(input_pipeline, name, lambda: (texts[:18], texts[18:]))
    return base


def small_config(method, sources):
    """A config with a small network and few steps."""
    config = tiny.get_config(method)
    config.base_folder = str(sources / "base")
    sizes: Any = config.base_model
    config.base_model = {**sizes, **SMALL}
    config.base_steps, config.base_length, config.length = 6, 32, 40
    config.batch_size, config.num_steps, config.log_every_steps = 8, 6, 2
    config.group, config.rank, config.prompt_length = 8, 4, 3
    config.pairs, config.windows, config.window = 32, 32, 16
    return config


SLOW = ("lora", "prompt", "full")


@pytest.mark.parametrize("method", [
    pytest.param(method, marks=[pytest.mark.slow] if method in SLOW else [])
    for method in train.METHODS])
def test_each_recipe_trains_what_it_should(method, sources, tmp_path, capsys):
    config = small_config(method, sources)
    state, (before, after) = train.train_and_evaluate(config, tmp_path)
    assert 0 <= after["accuracy"] <= 1
    assert method == "probe" or after["loss"] < before["loss"]  # its two kinds of text are equal
    assert int(state.step) == 6 and f"{method}: held out after 6 steps" in capsys.readouterr().out
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["eval_loss"] == pytest.approx(after["loss"])
    about, base = models.load(sources / "base")
    kept = {"prompt": lambda p: p["model"], "probe": None, "full": None}.get(
        method, finetuning.without_adapters
    )
    if kept and method != "qlora":  # the base model has not changed
        for x, y in zip(*map(toile.tree.leaves, (kept(state.params), base)), strict=True):
            assert (np.asarray(x) == np.asarray(y)).all()
    folder = tmp_path / "result"
    if method == "full":
        saved = huggingface.load(folder, {"params": state.params}, models.table(about))
        assert (saved["params"]["embedding"]["embedding"]
                == state.params["embedding"]["embedding"]).all()
    elif method in ("lora", "dpo"):
        again = finetuning.load_peft(folder, {"params": base}, models.table(about))
        assert toile.tree.structure(again["params"]) == toile.tree.structure(state.params)


def test_the_model_is_that_of_the_folder(sources):
    about = {"model_type": "qwen3", "vocab_size": 11, "head_dim": 4, **SMALL}
    params = models.initial(about, random.key(0))
    huggingface.save(sources / "qwen", {"params": params}, about, models.table(about))
    found, loaded = models.load(sources / "qwen", dtype="bfloat16")
    assert found["model_type"] == "qwen3"
    assert {x.dtype for x in toile.tree.leaves(loaded)} == {jnp.dtype("bfloat16")}
    plain = models.Decoder(models.Config.from_dict(about))
    row = np.array([[1, 5, 2, 7]])
    logits = plain.apply({"params": params}, row, row * 0 + 1, np.arange(4)[None])
    remat = models.Decoder(plain.config, remat=True)
    other = remat.apply({"params": params}, row, row * 0 + 1, np.arange(4)[None])
    np.testing.assert_allclose(logits, other, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="needed a model of the types llama, qwen2, qwen3"):
        models.Config.from_dict({**about, "model_type": "gemma"})


class Letters:
    """A tokenizer of letters."""

    size = 128

    def encode(self, text, special=True):
        return [ord(c) % 128 for c in text]


def test_chats_are_encoded_with_the_template_of_the_folder(tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    monkeypatch.setattr(huggingface, "load_tokenizer", lambda folder: Letters())
    (tmp_path / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
        "{% endfor %}")
    chat = {"messages": [{"role": "user", "content": "hi"},
                         {"role": "assistant", "content": "yes"}]}
    (tmp_path / "chats.jsonl").write_text("\n".join([json.dumps(chat)] * 6))
    config = default.get_config()
    config.folder, config.file = str(tmp_path), str(tmp_path / "chats.jsonl")
    config.length, config.held_out = 20, 3
    rows, held_out = input_pipeline.packed(config)
    labels = rows["labels"][rows["labels"] >= 0]
    assert "".join(map(chr, labels)) == "yes" * 4 and len(held_out["tokens"]) == 1
    (tmp_path / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="needed a folder with a chat template"):
        input_pipeline.packed(config)


def test_the_included_texts_and_unknown_names():
    config = tiny.get_config("full")
    rows, held_out = input_pipeline.packed(config)
    assert len(rows["tokens"]) > 1000 and len(held_out["tokens"]) > 100
    config.dataset = "wikitext"
    with pytest.raises(ValueError, match="'library', 'topics', 'file' or 'chats', got 'wikitext'"):
        input_pipeline.packed(config)
    config.method = "other"
    with pytest.raises(ValueError, match="config.method: needed one of"):
        train.recipe(config, {}, {})
