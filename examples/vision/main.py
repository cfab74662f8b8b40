"""Classify images with a pretrained model: `python -m examples.vision.main`.

`--folder` names the folder of a Hugging Face model. The most likely labels of each image are
printed. CLIP chooses among the texts that `--label` names.
"""

import sys

import numpy as np
from absl import app, flags

import toile
from toile.interop import huggingface

from . import images, models

FOLDER = flags.DEFINE_string("folder", None, "Folder with config.json and weights.")
IMAGE = flags.DEFINE_multi_string("image", None, "File of an image; may be repeated.")
LABEL = flags.DEFINE_multi_string("label", [], "Text that CLIP compares with images; repeated.")
MOST = flags.DEFINE_integer("most", 5, "Number of labels to print for each image.")
DTYPE = flags.DEFINE_string("dtype", None, "Dtype of the parameters, such as bfloat16.")
flags.mark_flags_as_required(["folder", "image"])


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


def main(argv: list[str]) -> None:
    """Print the labels of the images."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    found = probabilities(FOLDER.value, IMAGE.value, LABEL.value, DTYPE.value)
    for file, rows in zip(IMAGE.value, found, strict=True):
        sys.stdout.write(f"{file}\n")
        for label, probability in rows[: MOST.value]:
            sys.stdout.write(f"  {probability:6.1%}  {label}\n")


if __name__ == "__main__":
    app.run(main)
