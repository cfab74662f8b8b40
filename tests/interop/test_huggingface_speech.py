"""The example speech computes what transformers computes.

The folders in tests/golden/pretrained were made with transformers
(`tests.golden.huggingface_speech`). With TOILE_TEST_ALL=1, where transformers is installed, it
makes new ones from another seed and loads what toile saved.
"""

import functools

import numpy as np
import pytest

import toile
from examples.speech import audio, generate, layers, models, transcribe
from tests.golden import huggingface_speech as golden
from tests.interop.test_huggingface import (
    TOLERANCE,
    answers,
    assert_same_tensors,
    check_gradients,
    full_names,
)
from toile.interop import huggingface

pytestmark = pytest.mark.filterwarnings("ignore:jit. .* is traced")  # for each model


@functools.cache
def loaded(folder):
    return models.load(folder)


def table_of(config):
    return models.architecture(config).table(config)


def check(folder, tmp_path):
    """Logits, loss, gradients and transcriptions."""
    model, variables, config = loaded(folder)
    want = answers(folder)

    def loss(variables):
        logits = model.apply(variables, want["spectrograms"], want["before"])
        return layers.token_loss(logits, want["labels"]), logits

    (value, logits), gradients = toile.value_and_grad(loss, has_aux=True)(variables)
    np.testing.assert_allclose(logits, want["logits"], **TOLERANCE)
    np.testing.assert_allclose(value, want["loss"], rtol=1e-5)
    check_gradients(folder, gradients, table_of(config), tmp_path)
    check_transcriptions(folder, model, variables, config, want)


def check_transcriptions(folder, model, variables, config, want):
    ids = {**config, **huggingface.load_generation_config(folder), "eos_token_id": []}
    ids |= {"suppress_tokens": None, "begin_suppress_tokens": None}
    given = toile.numpy.asarray(want["spectrograms"])
    run = functools.partial(transcribe.tokens_of, model, variables, given, steps=golden.STEPS)
    multilingual = "guessed" in want
    more = {"language": "en", "task": "translate"} if multilingual else {}
    assert run(ids, **more) == want["greedy"].tolist()
    ids["begin_suppress_tokens"] = [int(want["greedy"][0, 0])]
    ids["suppress_tokens"] = [int(want["greedy"][1, 2])]
    assert run(ids, **more) == want["suppressed"].tolist()
    if multilingual:
        assert run(ids) == want["guessed"].tolist()
        prompt = transcribe.prompts(model, variables, given, ids, None, "transcribe")
        assert prompt.tolist() == [[3, int(n), 7, 63] for n in want["languages"]]
    end = int(want["suppressed"][2, 2])
    ended = [generate.until(row, (end, 0)) for row in want["ended"].tolist()]  # 0 is padding
    assert [generate.until(row, (0,)) for row in run({**ids, "eos_token_id": end}, **more)] == ended


@pytest.mark.parametrize("name", golden.CASES)
def test_models_compute_what_transformers_computed(name, tmp_path):
    check(golden.FOLDER / name, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", golden.CASES)
def test_models_compute_what_transformers_computes(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    golden.make(name, tmp_path / "made", seed=7)
    check(tmp_path / "made", tmp_path / "gradients")
    _, variables, config = loaded(tmp_path / "made")
    huggingface.save(tmp_path / "saved", variables, config, table_of(config), max_shard_size=9000)
    kind = getattr(transformers, golden.CASES[name].model)
    ours, theirs = (kind.from_pretrained(tmp_path / folder) for folder in ("saved", "made"))
    for (key, x), (_, y) in zip(
        ours.state_dict().items(), theirs.state_dict().items(), strict=True
    ):
        assert x.dtype == y.dtype and x.numpy().tobytes() == y.numpy().tobytes(), key


@pytest.mark.parametrize("most", [5_000_000_000, 3_000])
@pytest.mark.parametrize("name", golden.CASES)
def test_weights_there_and_back(name, most, tmp_path):
    folder = golden.FOLDER / name
    _, variables, config = loaded(folder)
    huggingface.save(tmp_path, variables, config, table_of(config), max_shard_size=most)
    stored = full_names(huggingface.load_tensors(folder), table_of(config))
    assert_same_tensors(huggingface.load_tensors(tmp_path), stored)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or most > 3_000
    assert huggingface.load_config(tmp_path) == huggingface.load_config(folder)
    toile.tree.map(np.testing.assert_array_equal, models.load(tmp_path)[1], variables)


def check_spectrograms(want):
    samples = audio.pieces(want["sound"].astype(np.float32) / 2**15, audio.RATE)
    for bands in (80, 128):
        got = audio.log_mel(samples, bands)
        assert got.shape == (1, 100, bands) and got.dtype == np.float32
        np.testing.assert_allclose(got[0, ::5], want[f"bands_{bands}"], rtol=1e-4, atol=1e-4)


def test_spectrograms_are_what_transformers_computed():
    with np.load(golden.FOLDER.parent / "spectrograms.npz") as file:
        check_spectrograms(dict(file))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_spectrograms_are_what_transformers_computes():
    pytest.importorskip("transformers")
    check_spectrograms(golden.spectrograms())
