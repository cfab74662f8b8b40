"""Makes small random models of speech with transformers, and what they compute.

`python -m tests.golden.huggingface_speech [NAME ...]` needs transformers and torch. It writes a
folder for each model to `tests/golden/pretrained`: the files that transformers writes, and
`answers.npz` with logits, losses, gradients and greedy transcriptions. `spectrograms.npz` contains
what the feature extractor of transformers computed.
"""

import sys
from pathlib import Path

import numpy as np

from tests.golden.huggingface import FOLDER, Case, write
from tests.golden.huggingface_vision import saved_gradients

STEPS = 6
WHISPER = {
    "vocab_size": 64, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "num_mel_bins": 8, "max_source_positions": 12,
    "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 3, "begin_suppress_tokens": None,
}  # fmt: skip
LANGUAGES = {"<|de|>": 4, "<|en|>": 5, "<|fr|>": 6}
CASES = {
    "whisper": Case("WhisperForConditionalGeneration", WHISPER, "english"),
    "whisper_multilingual": Case("WhisperForConditionalGeneration", {
        **WHISPER, "encoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 20,
        "encoder_ffn_dim": 28, "activation_function": "relu",
    }, "multilingual"),
}  # fmt: skip
MULTILINGUAL = {
    "is_multilingual": True, "lang_to_id": LANGUAGES, "no_timestamps_token_id": 63,
    "task_to_id": {"transcribe": 7, "translate": 8},
}  # fmt: skip


def make(name: str, folder: Path, seed: int = 0) -> None:
    """Write the model and its answers to a folder."""
    import torch
    import transformers

    case = CASES[name]
    torch.manual_seed(seed)
    made = getattr(transformers, case.model)
    config = made.config_class(**case.config)
    config._attn_implementation = "eager"
    model = made(config).eval()
    with torch.no_grad():  # norms and biases would be ones and zeros
        for x in model.parameters():
            x.copy_(x.mean() + 0.25 * torch.randn(x.shape))
        model.model.decoder.embed_positions.weight *= 4  # else tokens would repeat
    model.tie_weights()
    if case.kind == "multilingual":
        for key, value in MULTILINGUAL.items():
            setattr(model.generation_config, key, value)
    answers = _answers(model, np.random.default_rng(seed), case.kind, folder)
    np.savez_compressed(folder / "answers.npz", **answers)


def _answers(model, rng, kind, folder) -> dict[str, np.ndarray]:
    """Transcriptions, logits, the loss and gradients."""
    import torch

    bands, frames = model.config.num_mel_bins, 2 * model.config.max_source_positions
    given = rng.normal(size=(3, bands, frames)).astype(np.float32)
    labels = rng.integers(10, 64, (3, 7))
    before = np.concatenate([np.full((3, 1), 3), labels[:, :-1]], axis=1)
    labels[1, 5:] = -100
    features = torch.tensor(given)
    out = {"spectrograms": given.transpose(0, 2, 1), "labels": labels, "before": before}
    out |= _transcriptions(model, features, kind)
    folder.mkdir(parents=True, exist_ok=True)
    write(model, folder, "safetensors")
    done = model(input_features=features, decoder_input_ids=torch.tensor(before),
                 labels=torch.tensor(labels))  # fmt: skip
    out |= {"logits": done.logits.detach().numpy().copy(), "loss": done.loss.item()}
    return out | saved_gradients(model, done.loss)


def _transcriptions(model, features, kind) -> dict[str, np.ndarray]:
    """Greedy transcriptions, with an end token and tokens that must not be chosen."""
    settings = model.generation_config
    settings.do_sample, settings.max_new_tokens = False, STEPS
    settings.eos_token_id, settings.pad_token_id = None, 0
    more = {"language": "en", "task": "translate"} if kind == "multilingual" else {}
    prompt = 4 if kind == "multilingual" else 1
    run = lambda **options: model.generate(features, **options).numpy()[:, -STEPS:]
    out = {"greedy": run(**more)}
    settings.begin_suppress_tokens = [int(out["greedy"][0, 0])]
    settings.suppress_tokens = [int(out["greedy"][1, 2])]
    out["suppressed"] = run(**more)
    if kind == "multilingual":
        out["guessed"] = run(task="transcribe")
        out["languages"] = model.detect_language(features).numpy()
    settings.eos_token_id = int(out["suppressed"][2, 2])
    ended = model.generate(features, **more).numpy()
    out["ended"] = ended if ended.shape[1] <= STEPS else ended[:, prompt:]
    settings.max_new_tokens = None
    return out


def spectrograms() -> dict[str, np.ndarray]:
    """A short recording and the values that the feature extractor computes, of each fifth frame."""
    import transformers

    rng = np.random.default_rng(0)
    time = np.arange(4000) / 16_000
    sound = 0.3 * np.sin(2 * np.pi * 440 * time * (1 + time)) + 0.02 * rng.normal(size=4000)
    sound = np.round(sound * 2**15).astype(np.int16)
    out = {"sound": sound}
    for bands in (80, 128):
        made = transformers.WhisperFeatureExtractor(feature_size=bands, chunk_length=1)
        given = sound.astype(np.float32) / 2**15
        found = made(given, sampling_rate=16_000, return_tensors="np")["input_features"]
        out[f"bands_{bands}"] = np.asarray(found)[0].T[::5]
    return out


def main(names: list[str]) -> None:
    """Write the folders of the named models, or of all, and the spectrograms."""
    np.savez_compressed(FOLDER.parent / "spectrograms.npz", **spectrograms())
    for name in names or CASES:
        make(name, FOLDER / name)
        size = sum(path.stat().st_size for path in (FOLDER / name).iterdir())
        print(f"{name}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
