"""Pairs of token sequences: span corruption of Python's help topics, of any text, or a seqio task.

A batch is a dict of `inputs` and `targets` (int32 [batch, length], 0 for padding). Texts are
joined, with an END after each, and cut into windows. New spans are hidden each time a window is
used.
"""

import itertools

import numpy as np

from toile.training import datasets, text
from toile.training.loader import Loader

from . import span_corruption


def tokenizer(recipe):
    """Return a tokenizer for bytes, or a sentencepiece model such as T5's own."""
    if not recipe.vocabulary_file:
        return text.Bytes()
    return text.SentencePiece(recipe.vocabulary_file)


def documents(recipe):
    """Return the training texts and the held-out texts."""
    if recipe.dataset == "topics":
        file = datasets.shipped("python_topics/topics.txt", __file__)
        return text.split_off(text.documents_of_file(file), recipe.held_out)
    if recipe.dataset == "tfds":
        splits = (recipe.train_split, recipe.test_split)
        return text.documents_of_tfds(recipe.tfds_name, splits, count=recipe.train_documents)
    if recipe.dataset == "file":
        return tuple(map(text.documents_of_file, (recipe.train_file, recipe.test_file)))
    raise ValueError(
        f"Recipe.dataset: needed 'topics', 'tfds', 'file' or 'seqio', got {recipe.dataset!r}"
    )


def windows(tokens, texts, length: int) -> dict[str, np.ndarray]:
    """Join texts into one row of tokens, and cut it into windows; an incomplete one is left out."""
    joined = np.array([t for x in texts for t in (*tokens.encode(x), text.END)], np.int32)
    count = len(joined) // length
    return {"tokens": joined[: count * length].reshape(count, length)}


def seqio_pairs(recipe, split: str, count: int) -> dict[str, np.ndarray]:
    """Return the first `count` pairs of a seqio task, padded."""
    try:
        import seqio
    except ImportError as error:
        raise ImportError(
            "Recipe.dataset='seqio': needed the package seqio, which is not installed: "
            "pip install seqio (the datasets 'topics', 'tfds' and 'file' do not need it)"
        ) from error
    wanted = {"inputs": recipe.inputs_length, "targets": recipe.targets_length}
    found = seqio.get_mixture_or_task(recipe.seqio_task).get_dataset(
        sequence_length=wanted, split=split, shuffle=False
    )
    pairs = {name: np.zeros((count, length), np.int32) for name, length in wanted.items()}
    seen = 0
    for i, example in enumerate(itertools.islice(found.as_numpy_iterator(), count)):
        for name, length in wanted.items():
            row = np.asarray(example[name])[:length]
            pairs[name][i, : len(row)] = row
        seen = i + 1
    return {name: rows[:seen] for name, rows in pairs.items()}


def loaders(recipe, vocabulary: int, key) -> tuple[Loader, Loader]:
    """Return loaders of shuffled training batches, and of fixed held-out batches."""
    if recipe.dataset == "seqio":
        train = seqio_pairs(recipe, recipe.train_split, recipe.train_documents)
        held_out = seqio_pairs(recipe, recipe.test_split, recipe.test_documents)
        return (
            Loader(train, recipe.batch_size, key=key),
            Loader(held_out, recipe.eval_batch_size, last="pad"),
        )
    train, held_out = documents(recipe)
    tokens = tokenizer(recipe)
    shape = {"density": recipe.noise_density, "mean_span": recipe.mean_span}
    length = span_corruption.text_length(recipe.inputs_length, **shape)

    def hide(batch, rng):
        return span_corruption.corrupt(batch, rng, vocabulary=vocabulary, **shape)

    if tokens.size + span_corruption.counts(length, **shape)[1] > vocabulary:
        raise ValueError(
            f"T5Config.vocabulary: needed {tokens.size} tokens and a sentinel for each span of a "
            f"window of {length}, got {vocabulary}"
        )
    fixed = hide(windows(tokens, held_out, length), np.random.default_rng(0))
    return (
        Loader(windows(tokens, train, length), recipe.batch_size, key=key, augment=hide),
        Loader(fixed, recipe.eval_batch_size, last="pad"),
    )
