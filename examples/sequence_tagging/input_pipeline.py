"""Sequences of tagged words: the included Python library, or a treebank in CoNLL-U.

A batch is a dict of `words` (int32 [batch, length, 3]: the word, a hash of its last three letters
and a hash of all its letters; 0 for padding) and `labels` (int32 [batch, length], -1
where a token has no tag). Sequences that are longer than `config.length` are cut into windows.
"""

import collections
import functools
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from toile.training import datasets
from toile.training.loader import Loader

from . import conllu, python_tags

Pairs = list[tuple[str, str]]  # words with their tags, "" for no tag
PAD, UNKNOWN = 0, 1
ENDINGS, SPELLINGS = 512, 4096  # number of hash values


@functools.cache
def python_library(files: int, held_out: int) -> tuple[list[Pairs], list[Pairs]]:
    """Return the training files of the included library, and every n-th file as held-out files."""
    with zipfile.ZipFile(datasets.shipped("python_library/library.zip", __file__)) as archive:
        names = [name for name in sorted(archive.namelist()) if name.endswith(".py")]
        sources = [archive.read(name).decode("ascii") for name in names[: files or None]]
    tagged = [list(python_tags.tagged(source)) for source in sources]
    test = [pairs for i, pairs in enumerate(tagged) if i % held_out == 0]
    return [pairs for i, pairs in enumerate(tagged) if i % held_out], test


def treebank(config) -> tuple[list[Pairs], list[Pairs]]:
    """Return the sentences of two files of a Universal Dependencies treebank."""
    paths = [Path(config.train_file), Path(config.test_file)]
    absent = [str(path) for path in paths if not path.is_file()]
    if absent:
        raise FileNotFoundError(
            f"config.dataset='conllu': needed the files of a treebank, found none at {absent}; get "
            "one with\n    git clone https://github.com/UniversalDependencies/UD_English-EWT\nand "
            "name its files with --config.train_file=… and --config.test_file=…"
        )
    train, test = (conllu.read(path, config.column) for path in paths)
    return train, test


class Vocabulary:
    """The ids of the words and tags that occur in the training data."""

    def __init__(self, texts: Sequence[Pairs], min_count: int):
        counts = collections.Counter(word for text in texts for word, _ in text)
        kept = [word for word, count in counts.items() if count >= min_count]
        self.words = ["<pad>", "<unknown>", *sorted(kept, key=lambda w: (-counts[w], w))]
        self.tags = sorted({tag for text in texts for _, tag in text if tag})
        self.word_numbers = {word: number for number, word in enumerate(self.words)}
        self.tag_numbers = {tag: number for number, tag in enumerate(self.tags)}

    def features(self, word: str) -> tuple[int, int, int]:
        """Return the id of a word, and hashes of its ending and its spelling, which start at 1."""
        ending = zlib.crc32(word[-3:].lower().encode()) % (ENDINGS - 1) + 1
        spelling = zlib.crc32(word.encode()) % (SPELLINGS - 1) + 1
        return self.word_numbers.get(word, UNKNOWN), ending, spelling

    def windows(self, texts: Sequence[Pairs], length: int) -> dict[str, np.ndarray]:
        """Encode windows of `length` tokens as words and labels; an unknown tag counts as wrong."""
        parts = [text[i : i + length] for text in texts for i in range(0, len(text), length)]
        words = np.zeros((len(parts), length, 3), np.int32)
        labels = np.full((len(parts), length), -1, np.int32)
        for row, part in enumerate(parts):
            words[row, : len(part)] = [self.features(word) for word, _ in part]
            labels[row, : len(part)] = [
                self.tag_numbers.get(tag, len(self.tags)) if tag else -1 for _, tag in part
            ]
        return {"words": words, "labels": labels}


def arrays(config) -> tuple[Vocabulary, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the vocabulary, the training windows and the held-out windows."""
    if config.dataset == "python":
        train, test = python_library(config.files, config.held_out)
    elif config.dataset == "conllu":
        train, test = treebank(config)
    else:
        raise ValueError(f"config.dataset: needed 'python' or 'conllu', got {config.dataset!r}")
    vocabulary = Vocabulary(train, config.min_count)
    found = [vocabulary.windows(texts, config.length) for texts in (train, test)]
    return vocabulary, found[0], found[1]


def loaders(config, key) -> tuple[Vocabulary, Loader, Loader]:
    """Return the vocabulary, and loaders of shuffled training windows and of held-out windows."""
    vocabulary, train, test = arrays(config)

    def without_padding(batch):
        real = batch["mask"][:, None]
        return {**batch, "labels": np.where(real, batch["labels"], -1)}

    return (
        vocabulary,
        Loader(train, config.batch_size, key=key),
        Loader(test, config.eval_batch_size, last="pad", transform=without_padding),
    )
