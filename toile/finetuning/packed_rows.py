"""Several examples in one row: labels, positions and masks that keep the examples apart."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import here
from toile.finetuning.token_losses import IGNORED

__all__ = ["attention_mask", "pack"]

Example = Sequence[int] | tuple[Sequence[int], Sequence[bool]]


def pack(
    examples: Iterable[Example], length: int, *, pad: int = 0, together: bool = True
) -> dict[str, np.ndarray]:
    """Pack examples into rows of equal length.

    Args:
        examples: the tokens of each example, or pairs of tokens and bools, as `encode_chat`
            returns them. The bools are True for the tokens that a model is trained to predict; by
            default, these are all tokens. Examples that are longer than a row are truncated.
        length: number of tokens in a row.
        pad: token that fills the rest of a row.
        together: whether several examples may share a row.

    Returns:
        A dict of int32 arrays of shape (rows, length):

        - `tokens`: the tokens of the examples, followed by `pad` at the end of each row.
        - `labels`: the tokens that a model is trained to predict. All other tokens have the label
          -100, as does the first token of each example, because it cannot be predicted from
          another example. Pass this array to `token_loss`.
        - `segments`: for each token, the number of its example in the row, counted from 1; 0 for
          padding. Pass this array to `attention_mask`.
        - `positions`: the position of each token in its example.

    Raises:
        ValueError: `length` is less than 1, or an example does not have one bool for each token.

    >>> from toile.finetuning import pack
    >>> rows = pack([[7, 8, 9], [5, 6], ([3, 4, 2], [False, False, True])], 5)
    >>> rows["tokens"].tolist()
    [[7, 8, 9, 5, 6], [3, 4, 2, 0, 0]]
    >>> rows["labels"].tolist()
    [[-100, 8, 9, -100, 6], [-100, -100, 2, -100, -100]]
    >>> rows["segments"].tolist(), rows["positions"].tolist()
    ([[1, 1, 1, 2, 2], [1, 1, 1, 0, 0]], [[0, 1, 2, 0, 1], [0, 1, 2, 0, 0]])
    """
    if length < 1:
        raise ValueError(f"pack: needed a length of at least 1, got {length}{here()}")
    given = [_checked(example, i, length) for i, example in enumerate(examples)]
    rows = _rows([len(tokens) for tokens, _ in given], length, together)
    shape = (len(rows), length)
    out = {"tokens": np.full(shape, pad, np.int32), "labels": np.full(shape, IGNORED, np.int32),
           "segments": np.zeros(shape, np.int32), "positions": np.zeros(shape, np.int32)}
    for row, members in enumerate(rows):
        start = 0
        for number, i in enumerate(members, start=1):
            tokens, trained = given[i]
            place = (row, slice(start, start + len(tokens)))
            out["tokens"][place] = tokens
            out["labels"][place] = np.where(trained, tokens, IGNORED)
            out["labels"][row, start] = IGNORED
            out["segments"][place] = number
            out["positions"][place] = np.arange(len(tokens))
            start += len(tokens)
    return out


def _checked(example: Example, i: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of an example, and which of them a model is trained to predict."""
    pair = isinstance(example, tuple) and len(example) == 2 and np.ndim(example[0]) == 1
    tokens, trained = example if pair else (example, np.ones(len(example), bool))
    found, flags = np.asarray(tokens, np.int32), np.asarray(trained, bool)
    if found.ndim != 1 or found.shape != flags.shape:
        raise ValueError(f"pack: needed one list of tokens, or tokens and as many bools, got shapes"
                         f" {found.shape} and {flags.shape} for example {i}{here()}")
    return found[:length], flags[:length]


def _rows(sizes: Sequence[int], length: int, together: bool) -> list[list[int]]:
    """Divide examples among rows: the longest first, each into the fullest row with enough room."""
    order = sorted((i for i, size in enumerate(sizes) if size), key=lambda i: -sizes[i])
    if not together:
        return [[i] for i in sorted(order)]
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # free tokens and number of each row, sorted
    for i in order:
        place = bisect.bisect_left(room, (sizes[i], -1))
        if place == len(room):
            free, row = length, len(rows)
            rows.append([])
        else:
            free, row = room.pop(place)
        rows[row].append(i)
        bisect.insort(room, (free - sizes[i], row))
    return sorted(sorted(row) for row in rows)


def attention_mask(segments: ArrayLike, *, causal: bool = True) -> Array:
    """Create a mask that lets tokens attend only to tokens of the same example.

    Args:
        segments: array of shape (batch, length) that contains the number of each token's example; 0
            for padding.
        causal: whether tokens attend only to themselves and to earlier tokens.

    Returns:
        A bool array of shape (batch, 1, length, length). Element [i, 0, q, k] is True if token q of
        row i attends to token k.

    >>> from toile.finetuning import attention_mask
    >>> attention_mask(jnp.array([[1, 1, 2, 0]]))[0, 0].astype(int)
    Array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 0, 0, 0]], dtype=int32)
    """
    segments = jnp.asarray(segments)
    same = segments[:, None, :, None] == segments[:, None, None, :]
    mask = same & (segments > 0)[:, None, None, :]
    if not causal:
        return mask
    place = jnp.arange(segments.shape[1])
    return mask & (place[:, None] >= place[None, :])
