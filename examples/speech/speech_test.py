"""Whisper: its cache, sizes, dropout, wav files, spectrograms, and folders that are read."""

import functools
import wave

import numpy as np
import pytest

import toile
import toile.numpy as jnp
from toile.interop import huggingface

from . import audio, generate, models, transcribe

CONFIG = {
    "model_type": "whisper", "vocab_size": 50, "d_model": 16, "encoder_layers": 1,
    "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "num_mel_bins": 8, "max_source_positions": 6,
    "max_target_positions": 14, "eos_token_id": 2, "decoder_start_token_id": 3, "dropout": 0.2,
}  # fmt: skip
# Each test traces the same function with other options.
pytestmark = pytest.mark.filterwarnings("ignore:jit. transcribe is traced repeatedly")
TOKENS = np.random.default_rng(0).integers(4, 50, (2, 9))
SOUNDS = np.random.default_rng(1).normal(size=(2, 12, 8)).astype(np.float32)


@functools.cache
def made():
    """A random model and its variables."""
    model = models.architecture(CONFIG).model(CONFIG)
    variables = model.init(toile.random.key(0), SOUNDS, TOKENS)
    keys = toile.random.split(toile.random.key(1), len(toile.tree.leaves(variables)))
    leaves, structure = toile.tree.flatten(variables)
    noisy = [x + 0.2 * toile.random.normal(k, x.shape) for k, x in zip(keys, leaves)]
    return model, toile.tree.unflatten(structure, noisy)


def close(x, y):
    np.testing.assert_allclose(x, y, rtol=2e-4, atol=2e-5)


def test_a_cache_changes_nothing():
    model, variables = made()
    whole = model.apply(variables, SOUNDS, TOKENS)
    encoded = model.apply(variables, SOUNDS, method="encode")
    cache = generate.empty_cache(model, variables, jnp.asarray(TOKENS), encoded)
    found = []
    for given in ((TOKENS[:, :4], encoded), (TOKENS[:, 4:5],), (TOKENS[:, 5:],)):
        logits, changed = model.apply(
            {**variables, "cache": cache}, *given, decode=True, mutable=["cache"], method="decode"
        )
        cache = changed["cache"]
        found.append(logits)
    close(np.concatenate(found, axis=1), whole)


def test_tokens_depend_on_the_past_and_on_the_sound():
    model, variables = made()
    whole = model.apply(variables, SOUNDS, TOKENS)
    close(model.apply(variables, SOUNDS, TOKENS[:, :5]), whole[:, :5])
    close(model.apply(variables, SOUNDS[1:], TOKENS[1:]), whole[1:])
    other = model.apply(variables, SOUNDS[::-1], TOKENS)
    assert np.abs(other - whole).max(axis=(0, 2)).min() > 1e-4


def test_a_transcription_is_what_repeated_calls_without_a_cache_choose():
    model, variables = made()
    prompt = tokens = np.array([[3, 7], [3, 8]])
    never = (11, 12)
    not_first: tuple[int, ...] = ()
    for _ in range(5):
        logits = np.array(model.apply(variables, SOUNDS, tokens)[:, -1])
        not_first = not_first or (int(logits[0].argmax()),)
        logits[:, [*never, *(not_first if tokens.shape[1] == 2 else ())]] = -np.inf
        tokens = np.concatenate([tokens, logits.argmax(axis=-1)[:, None]], axis=1)
    run = functools.partial(
        generate.transcribe, model, variables, jnp.asarray(SOUNDS), jnp.asarray(prompt), steps=5,
        never=never, not_first=not_first,
    )  # fmt: skip
    got = tokens[:, 2:]
    assert run().tolist() == got.tolist()
    end = int(got[0, 2])
    ended = run(ends=(end,), pad=1).tolist()
    for row, want in zip(ended, got.tolist(), strict=True):
        kept = generate.until(want, (end,))
        assert row == [*kept, *[end] * (len(kept) < 5), *[1] * (4 - len(kept))]


def test_a_folder_that_is_written_is_read(tmp_path):
    _, variables = made()
    table = models.architecture(CONFIG).table(CONFIG)
    huggingface.save(tmp_path, variables, CONFIG, table)
    model, again, _ = models.load(tmp_path, dtype="bfloat16")
    want = toile.tree.map(lambda x: x.astype("bfloat16"), variables)
    toile.tree.map(np.testing.assert_array_equal, again, want)
    assert model.apply(again, SOUNDS, TOKENS).shape == (2, 9, 50)


def test_dropout_is_for_training_and_sine_waves_are_not_trained():
    model, variables = made()
    run = functools.partial(model.apply, spectrograms=SOUNDS, tokens=TOKENS)
    moved = run(variables, train=True, rngs={"dropout": toile.random.key(0)})
    assert np.abs(moved - run(variables)).max() > 1e-3
    gradients = toile.grad(lambda v: jnp.sum(run(v) ** 2))(variables)["params"]
    assert not np.any(gradients["encoder"]["positions"]["embedding"])
    assert np.any(gradients["decoder"]["positions"]["embedding"])


def sizes(features, layers, heads, **more):
    """The entries of config.json of a published model."""
    stacks = {f"{part}_{name}": value for part in ("encoder", "decoder")
              for name, value in (("layers", layers), ("attention_heads", heads),
                                  ("ffn_dim", 4 * features))}  # fmt: skip
    return {"model_type": "whisper", "d_model": features, "vocab_size": 51865, **stacks, **more}


@pytest.mark.parametrize("config, parameters", [
    (sizes(384, 4, 6), 37_760_640),
    (sizes(512, 6, 8), 72_593_920),
    (sizes(768, 12, 12), 241_734_912),
    (sizes(1280, 32, 20, vocab_size=51866, num_mel_bins=128), 1_543_490_560),
])  # fmt: skip
def test_published_models_have_their_numbers_of_parameters(config, parameters):
    module = models.architecture(config)
    model = module.model(config)
    shapes = toile.eval_shape(model.init, toile.random.key(0), *module.inputs(config))
    assert sum(x.size for x in toile.tree.leaves(shapes["params"])) == parameters


def test_settings_and_shapes_that_do_not_fit_are_errors():
    with pytest.raises(ValueError, match="needed one of whisper as model_type.* got 'wav2vec2'"):
        models.architecture({"model_type": "wav2vec2"})
    model, variables = made()
    with pytest.raises(ValueError, match=r"needed spectrograms \[batch, 12, 8\], got \[2, 9, 8\]"):
        model.apply(variables, SOUNDS[:, :9], TOKENS)
    with pytest.raises(ValueError, match="needed at most 14 tokens, prompt included, got 15"):
        prompt = jnp.full((2, 1), 3)
        generate.transcribe(model, variables, jnp.asarray(SOUNDS), prompt, steps=14)


def write_wav(path, samples, width=2, rate=audio.RATE):
    """Write samples [time, channels] from -1 to 1 to a wav file."""
    scaled = np.round(samples * (2 ** (8 * width - 1) - 1)).astype("<i4")
    data = (scaled + 128).astype(np.uint8) if width == 1 else scaled
    data = data.reshape(-1, 1).view(np.uint8)[:, : width if width > 1 else 1]
    with wave.open(str(path), "wb") as file:
        file.setnchannels(samples.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data.tobytes())


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_are_read(width, channels, tmp_path):
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, (50, channels))
    write_wav(tmp_path / "a.wav", samples, width)
    got = audio.read(tmp_path / "a.wav")
    assert got.dtype == np.float32 and got.shape == (50,)
    np.testing.assert_allclose(got, samples.mean(axis=1), atol=2 / 2 ** min(8 * width - 1, 20))


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_other_rates_are_converted(rate, tmp_path):
    tone = lambda rate: 0.5 * np.sin(2 * np.pi * 500 * np.arange(rate) / rate)
    write_wav(tmp_path / "a.wav", tone(rate)[:, None], rate=rate)
    got = audio.read(tmp_path / "a.wav")
    assert len(got) == audio.RATE
    np.testing.assert_allclose(got[500:-500], tone(audio.RATE)[500:-500], atol=0.01)


@pytest.mark.parametrize("length, rows", [(0, 1), (3, 1), (4, 1), (5, 2), (9, 3)])
def test_pieces_contain_all_samples(length, rows):
    samples = np.arange(1.0, length + 1)
    found = audio.pieces(samples, 4)
    assert found.shape == (rows, 4)
    assert found.ravel()[:length].tolist() == samples.tolist() and not found.ravel()[length:].any()


@pytest.mark.parametrize("hertz", [200.0, 1500.0, 5000.0])
def test_a_tone_is_in_the_band_of_its_frequency(hertz):
    tone = np.sin(2 * np.pi * hertz * np.arange(audio.RATE) / audio.RATE)[None]
    x = audio.log_mel(tone, 40)
    assert x.shape == (1, 100, 40) and x.max() - x.min() <= 2.0001
    centers = audio.hertz_of(np.linspace(audio.mel_of(0), audio.mel_of(8000), 42))[1:-1]
    band = x[0, 20:80].mean(axis=0).argmax()
    assert abs(band - np.abs(centers - hertz).argmin()) <= 1


def test_mels_are_the_inverse_of_frequencies():
    hertz = np.linspace(0, 8000, 50)
    np.testing.assert_allclose(audio.hertz_of(audio.mel_of(hertz)), hertz, rtol=1e-9)
    assert (np.diff(audio.mel_of(hertz)) > 0).all()


IDS = {
    **CONFIG, "lang_to_id": {"<|en|>": 4, "<|fr|>": 5}, "no_timestamps_token_id": 8,
    "task_to_id": {"transcribe": 6, "translate": 7},
}  # fmt: skip


def test_prompts_contain_language_and_task():
    model, variables = made()
    run = functools.partial(transcribe.prompts, model, variables, jnp.asarray(SOUNDS))
    assert run(IDS, "fr", "translate").tolist() == [[3, 5, 7, 8]] * 2
    assert run(CONFIG, None, "transcribe").tolist() == [[3]] * 2
    guessed = np.asarray(run(IDS, None, "transcribe"))[:, 1]
    logits = np.asarray(model.apply(variables, SOUNDS, np.full((2, 1), 3)))[:, -1]
    assert guessed.tolist() == (4 + logits[:, 4:6].argmax(axis=-1)).tolist()
    with pytest.raises(ValueError, match="needed a language of the model, en, fr, got 'de'"):
        run(IDS, "de", "transcribe")
    with pytest.raises(ValueError, match="needed language en and task transcribe"):
        run(CONFIG, "fr", "transcribe")


def test_recordings_are_transcribed(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    model, variables = made()
    table = models.architecture(CONFIG).table(CONFIG)
    huggingface.save(tmp_path, variables, CONFIG, table, generation_config=IDS)
    words = {f"w{i}": i for i in range(50)}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    raw.save(str(tmp_path / "tokenizer.json"))
    samples = np.random.default_rng(2).uniform(-0.5, 0.5, (3000, 1))  # two pieces of 1920 samples
    write_wav(tmp_path / "a.wav", samples)
    (text,) = transcribe.transcriptions(tmp_path, [tmp_path / "a.wav"], language="en", steps=4)
    rows = audio.pieces(audio.read(tmp_path / "a.wav"), 1920)
    want = []
    for row in rows:
        given = jnp.asarray(audio.log_mel(row[None], 8)), jnp.array([[3, 4, 6, 8]])
        (tokens,) = generate.transcribe(model, variables, *given, steps=4).tolist()
        want += generate.until(tokens, (2,))
    assert [words[word] for word in text.split()] == want
