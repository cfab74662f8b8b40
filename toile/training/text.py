"""Text as numbers: tokenizers, packing into rows, and documents from files or tensorflow-datasets.

Every tokenizer has `size`, `encode` and `decode`. Token 0 is padding, and token 1 marks the end of
a document. `pack` puts documents into rows of equal length. Several short documents can share a
row; they are numbered so that attention and positions can be kept separate.
"""

from __future__ import annotations

import array
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from toile.engine.file_reader import guarded
from toile.engine.source import here
from toile.training import datasets

T = TypeVar("T")

__all__ = [
    "END", "PAD", "Bytes", "SentencePiece", "documents_of_file", "documents_of_tfds", "pack",
    "split_off", "train_sentencepiece",
]

PAD, END = 0, 1
_OPEN_ROWS = 16  # rows that still wait for a document that fits


class Bytes:
    """Tokenizer whose tokens are the bytes of UTF-8 text, numbered from 2.

    Token 0 is padding, and token 1 marks the end of a document. The attribute `size`, the number of
    tokens, is 258.

    >>> from toile.training.text import Bytes
    >>> Bytes().encode("né")
    [112, 197, 171]
    >>> Bytes().decode([112, 197, 171, 1, 0])
    'né'
    """

    size = 258

    def encode(self, text: str) -> list[int]:
        """Convert a text to tokens, without adding an end token."""
        return [byte + 2 for byte in text.encode()]

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text that the tokens represent, ignoring padding and end tokens.

        Invalid UTF-8 is replaced with the character U+FFFD.
        """
        return bytes(int(t) - 2 for t in tokens if 2 <= t < 258).decode(errors="replace")


class SentencePiece:
    """Tokenizer that uses a sentencepiece model.

    Token 0 is padding, token 1 marks the end of a document, and token 2 stands for unknown text.
    The attribute `size` is the number of tokens.

    Args:
        path: path of a model that `train_sentencepiece` wrote.

    Raises:
        ImportError: the package sentencepiece is not installed.
        FileNotFoundError: there is no file at `path`.

    >>> from toile.training.text import SentencePiece
    >>> SentencePiece("model.spm").encode("some text")  # doctest: +SKIP
    [38, 262]
    """

    def __init__(self, path: str | os.PathLike[str]):
        module = _sentencepiece()
        if not Path(path).exists():
            raise FileNotFoundError(
                f"SentencePiece: needed a model, got no file {path} (train_sentencepiece makes "
                f"one){here()}"
            )
        self._model = module.SentencePieceProcessor(model_file=os.fspath(path))
        self.size: int = self._model.vocab_size()

    def encode(self, text: str) -> list[int]:
        """Convert a text to tokens, without adding an end token."""
        return self._model.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """Return the text of the tokens; padding, end and invalid tokens are ignored."""
        return self._model.decode([int(t) for t in tokens if 1 < t < self.size])


def train_sentencepiece(
    texts: Iterable[str], path: str | os.PathLike[str], size: int, kind: str = "unigram"
) -> SentencePiece:
    """Train a sentencepiece model on texts, and save the model.

    The model preserves spaces and line breaks.

    Args:
        texts: the texts.
        path: path of the file to which the model is written.
        size: number of tokens in the vocabulary.
        kind: kind of model: `"unigram"`, `"bpe"`, `"char"` or `"word"`.

    Returns:
        The tokenizer.

    Raises:
        ImportError: the package sentencepiece is not installed.

    >>> from toile.training.text import train_sentencepiece
    >>> tokenizer = train_sentencepiece(["a text", "another"], "model.spm", 300)  # doctest: +SKIP
    """
    module = _sentencepiece()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    part = Path(f"{os.fspath(path)}.part")  # so an interrupted run leaves no partial model
    with part.open("wb") as file:
        module.SentencePieceTrainer.train(
            sentence_iterator=iter(texts), model_writer=file, vocab_size=size, model_type=kind,
            pad_id=PAD, eos_id=END, unk_id=2, bos_id=-1, byte_fallback=True, minloglevel=2,
            user_defined_symbols=["\n"], normalization_rule_name="identity",
            remove_extra_whitespaces=False, max_sentence_length=1 << 16,
        )  # fmt: skip
    part.replace(path)
    return SentencePiece(path)


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            "SentencePiece: needed the package sentencepiece, which is not installed: "
            "pip install sentencepiece (byte tokens need nothing)"
        ) from error
    return sentencepiece


def documents_of_file(path: str | os.PathLike[str]) -> list[str]:
    r"""Read the documents in a UTF-8 text file.

    Args:
        path: path of the file. Documents are separated by form feeds or, if the file contains no
            form feeds, by blank lines.

    Returns:
        The non-empty documents.

    >>> import pathlib, tempfile
    >>> from toile.training.text import documents_of_file
    >>> path = pathlib.Path(tempfile.mkdtemp(), "text.txt")
    >>> _ = path.write_text("one\n\ntwo")
    >>> documents_of_file(path)
    ['one', 'two']
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"documents_of_file: needed a text file, got none at {path}")
    with guarded("documents_of_file", "a text file in UTF-8", f" ({os.fspath(path)})"):
        text = Path(path).read_text(encoding="utf-8")
    parts = text.split("\f") if "\f" in text else text.split("\n\n")
    return [part.strip("\n") for part in parts if part.strip()]


class _Texts(Sequence[str]):
    """The texts in one feature of a source of examples; at most `count`, decoded when accessed."""

    def __init__(self, source: Any, feature: str, count: int):
        self._source, self._feature = source, feature
        self._size = min(count, len(source)) if count else len(source)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, i: Any) -> Any:
        if i >= self._size:
            raise IndexError(i)
        text = self._source[i][self._feature]
        return text.decode() if isinstance(text, bytes) else str(text)


def documents_of_tfds(
    name: str, splits: Sequence[str], *, feature: str = "text", count: int = 0
) -> list[Sequence[str]]:
    """Open the texts in a data set that tensorflow-datasets has prepared.

    Args:
        name: name of the data set.
        splits: names of the splits.
        feature: name of the feature that contains the text.
        count: maximum number of texts to use from the first split; 0 means all texts.

    Returns:
        A list that contains a sequence of texts for each split. A text is read when it is accessed.

    >>> from toile.training.text import documents_of_tfds
    >>> train, test = documents_of_tfds("lm1b", ["train", "test"])  # doctest: +SKIP
    """
    sources = datasets.tfds_sources(name, splits)
    return [_Texts(s, feature, 0 if i else count) for i, s in enumerate(sources)]


def split_off(documents: Sequence[T], every: int) -> tuple[list[T], list[T]]:
    """Divide documents into a training part and a held-out part.

    Args:
        documents: the documents.
        every: number of documents in a group; the second document of each group is held out.

    Returns:
        A pair of lists (training, held out).

    >>> from toile.training.text import split_off
    >>> split_off("abcdef", 3)
    (['a', 'c', 'd', 'f'], ['b', 'e'])
    """
    kept = [text for i, text in enumerate(documents) if i % every != 1]
    return kept, [text for i, text in enumerate(documents) if i % every == 1]


def pack(
    documents: Iterable[Sequence[int]], length: int, *, together: bool = True
) -> dict[str, np.ndarray]:
    """Pack documents into rows of equal length.

    Each document is followed by the token `END` (1). A document that is longer than a row is cut
    into pieces. Rows are padded with `PAD` (0).

    Args:
        documents: the tokens of each document.
        length: length of a row.
        together: whether several short documents may share a row.

    Returns:
        A dict of two int32 arrays of shape (rows, length), `tokens` and `segments`. In `segments`,
        the documents in each row are numbered from 1, and padding is 0.

    >>> from toile.training.text import pack
    >>> rows = pack([[7, 8], [9], [5, 5, 5, 5, 5]], 5)
    >>> rows["tokens"].tolist()
    [[5, 5, 5, 5, 5], [7, 8, 1, 9, 1], [1, 0, 0, 0, 0]]
    >>> rows["segments"].tolist()
    [[1, 1, 1, 1, 1], [1, 1, 1, 2, 2], [1, 0, 0, 0, 0]]
    """
    tokens, segments = array.array("i"), array.array("H")

    def close(row: list[Sequence[int]]) -> None:
        missing = length - sum(map(len, row))
        for number, piece in enumerate(row, start=1):
            tokens.extend(piece)
            segments.extend([number] * len(piece))
        tokens.extend([PAD] * missing)
        segments.extend([0] * missing)

    rows: list[list[Sequence[int]]] = []  # open rows, each with its remaining room
    room: list[int] = []
    for document in documents:
        whole = [*document, END]
        for start in range(0, len(whole), length):
            piece = whole[start : start + length]
            if len(piece) == length or not together:
                close([piece])
                continue
            place = next((i for i, free in enumerate(room) if free >= len(piece)), None)
            if place is None:
                if len(rows) == _OPEN_ROWS:
                    fullest = room.index(min(room))
                    close(rows.pop(fullest))
                    room.pop(fullest)
                rows.append([])
                room.append(length)
                place = len(rows) - 1
            rows[place].append(piece)
            room[place] -= len(piece)
    for row in rows:
        close(row)
    return {
        "tokens": np.array(tokens, np.int32).reshape(-1, length),
        "segments": np.array(segments, np.int32).reshape(-1, length),
    }
