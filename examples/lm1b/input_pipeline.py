"""Texts as packed rows of tokens: Python's help topics, lm1b, or your own files.

A batch is a dict of `targets` (int32 [batch, length], 0 for padding), `inputs` (the targets shifted
by one; 0 at the start of a document), `positions` (within the document) and `segments` (the number
of the document in its row, from 1). END follows each document; documents that are too long are cut.
"""

from pathlib import Path

import numpy as np

from toile.training import datasets, text
from toile.training.loader import Loader


def documents(config):
    """Return the training texts and the held-out texts."""
    if config.dataset == "topics":
        file = datasets.shipped("python_topics/topics.txt", __file__)
        return text.split_off(text.documents_of_file(file), config.held_out)
    if config.dataset == "tfds":
        return text.documents_of_tfds(
            config.tfds_name, (config.train_split, config.test_split), count=config.train_documents
        )
    if config.dataset == "file":
        return tuple(map(text.documents_of_file, (config.train_file, config.test_file)))
    raise ValueError(
        f"config.dataset: needed 'topics', 'tfds' or 'file', got {config.dataset!r}"
    )


def tokenizer(config, texts):
    """Return a tokenizer for bytes, or a sentencepiece model, which is trained if it does not
    exist."""
    if config.tokenizer == "bytes":
        return text.Bytes()
    if config.tokenizer == "sentencepiece":
        if Path(config.vocabulary_file).exists():
            return text.SentencePiece(config.vocabulary_file)
        few = (texts[i] for i in range(min(len(texts), config.vocabulary_documents)))
        return text.train_sentencepiece(few, config.vocabulary_file, config.vocabulary_size)
    raise ValueError(
        f"config.tokenizer: needed 'bytes' or 'sentencepiece', got {config.tokenizer!r}"
    )


def shifted(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Make a batch of packed rows; the first token of a document is predicted from 0."""
    targets, segments = batch["tokens"], batch["segments"]
    before = np.pad(segments, ((0, 0), (1, 0)))[:, :-1]
    starts = segments != before
    inputs = np.where(starts, 0, np.pad(targets, ((0, 0), (1, 0)))[:, :-1])
    places = np.arange(targets.shape[1])
    positions = places - np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    found = {"inputs": inputs, "targets": targets, "positions": positions, "segments": segments}
    return {name: values.astype(np.int32) for name, values in found.items()}


def rows(config, tokens, texts) -> dict[str, np.ndarray]:
    """Pack texts into rows."""
    return text.pack((tokens.encode(t) for t in texts), config.length, together=config.pack)


def loaders(config, key):
    """Return the tokenizer, training and held-out loaders, and the bytes of held-out text."""
    train, held_out = documents(config)
    tokens = tokenizer(config, train)
    size = sum(len(t.encode()) for t in held_out)
    return (
        tokens,
        Loader(rows(config, tokens, train), config.batch_size, key=key, transform=shifted),
        Loader(
            rows(config, tokens, held_out), config.eval_batch_size, last="pad", transform=shifted
        ),
        size,
    )
