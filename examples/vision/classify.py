"""The probabilities of labels for image files, with a model in a folder."""

import numpy as np

import toile
from toile.interop import huggingface

from . import images, models


def probabilities(folder, files, labels=(), dtype=None) -> list[list[tuple[str, float]]]:
    """Return for each image the pairs of a label and its probability, the most likely first."""
    settings = images.load_settings(folder)
    pixels = np.stack([images.prepare(images.read(file), settings) for file in files])
    model, variables, config = models.load(folder, dtype=dtype)
    run = toile.jit(model.apply)
    if isinstance(model, models.clip.CLIP):
        if not labels:
            raise ValueError("needed texts for CLIP, got none (pass --label once or more)")
        logits = run(variables, pixels, *_tokens(folder, labels)).logits
    else:
        if labels:
            raise ValueError(f"needed no --label for {config['model_type']}, which has its own")
        logits = run(variables, pixels)
        names = config.get("id2label") or {}
        labels = [names.get(str(i), f"label {i}") for i in range(logits.shape[1])]
    rows = np.asarray(toile.nn.softmax(logits.astype("float32"), axis=-1))
    return [[(labels[i], float(row[i])) for i in np.argsort(-row)] for row in rows]


def _tokens(folder, texts):
    """Return the tokens of texts, padded on the right, and their mask."""
    tokenizer = huggingface.load_tokenizer(folder)
    rows = [tokenizer.encode(text) for text in texts]
    lengths = np.array([len(row) for row in rows])
    tokens = np.zeros((len(rows), lengths.max()), np.int32)
    for row, found in zip(tokens, rows, strict=True):
        row[: len(found)] = found
    return tokens, np.arange(lengths.max()) < lengths[:, None]
