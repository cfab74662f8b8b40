"""The texts of wav files, with a model in a folder and a prompt for language and task."""

import numpy as np

import toile.numpy as jnp
from toile.interop import huggingface

from . import audio, generate, models


def tokens_of(
    model, variables, spectrograms, ids: dict, *, steps, language=None, task="transcribe"
) -> list[list[int]]:
    """Return the tokens of the text of each spectrogram.

    `ids` contains the entries of config.json and of generation_config.json.
    """
    prompt = prompts(model, variables, spectrograms, ids, language, task)
    ends = ids["eos_token_id"]
    ends = tuple(ends) if isinstance(ends, list | tuple) else (ends,)
    rows = generate.transcribe(
        model, variables, spectrograms, prompt, steps=steps, ends=ends,
        never=tuple(ids.get("suppress_tokens") or ()),
        not_first=tuple(ids.get("begin_suppress_tokens") or ()),
    )  # fmt: skip
    return [generate.until(row, ends) for row in rows.tolist()]


def prompts(model, variables, spectrograms, ids, language, task):
    """Return the tokens [batch, length] before a text: start, language, task, no times."""
    start, batch = ids["decoder_start_token_id"], len(spectrograms)
    columns = [np.full(batch, start)]
    languages = ids.get("lang_to_id") or {}
    if languages and ids.get("is_multilingual", True):
        if language is None:
            options = {"start": start, "languages": tuple(languages.values())}
            guessed = generate.most_likely_language(model, variables, spectrograms, **options)
            columns.append(np.asarray(guessed))
        elif f"<|{language}|>" in languages:
            columns.append(np.full(batch, languages[f"<|{language}|>"]))
        else:
            known = ", ".join(name.strip("<|>") for name in languages)
            raise ValueError(f"needed a language of the model, {known}, got {language!r}")
        columns.append(np.full(batch, ids["task_to_id"][task]))
    elif language not in (None, "en") or task != "transcribe":
        raise ValueError(
            f"needed language en and task transcribe for a model of English only, got {language} "
            f"and {task} (use a model whose generation_config.json contains lang_to_id)"
        )
    if "no_timestamps_token_id" in ids:
        columns.append(np.full(batch, ids["no_timestamps_token_id"]))
    return jnp.stack([jnp.asarray(column, jnp.int32) for column in columns], axis=1)


def transcriptions(folder, files, *, language=None, task="transcribe", steps=224, dtype=None):
    """Return the text of each recording."""
    tokenizer = huggingface.load_tokenizer(folder)
    model, variables, config = models.load(folder, dtype=dtype)
    ids = {**config, **huggingface.load_generation_config(folder)}
    texts = []
    for file in files:
        rows = audio.pieces(audio.read(file), 2 * model.config.frames * audio.HOP)
        spectrograms = jnp.asarray(audio.log_mel(rows, model.config.bands))
        found = tokens_of(
            model, variables, spectrograms, ids, steps=steps, language=language, task=task
        )
        texts.append(" ".join(tokenizer.decode(row).strip() for row in found))
    return texts
