"""Functions that read prompts of different lengths into a cache, with little padding.

Prompts of similar lengths are read together, in one or several chunks. Logits are computed for the
last token of each prompt only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from toile import numpy as jnp
from toile.engine.annotations import Array, PyTree
from toile.engine.source import describe, here
from toile.generation.compiled_programs import compiled
from toile.generation.decoders import Decoder, empty_cache, last_logits, put_rows

CHUNK = 512  # number of tokens per row that one call reads


def checked(prompts: Any, who: str) -> list[list[int]]:
    """Check prompts, and return them as lists of Python integers."""
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        raise TypeError(
            f"{who}: needed a list of prompts, each a list of tokens, got {describe(prompts)} "
            f"(tokenize texts first: [tokenizer.encode(text)]){here()}"
        )
    out = []
    for i, prompt in enumerate(prompts):
        tokens = np.asarray(prompt)
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu" or not tokens.size or tokens.min() < 0:
            raise ValueError(
                f"{who}: needed a list of at least one token, each an integer >= 0, for every "
                f"prompt, got {str(prompt)[:60]} as prompt {i} (an empty prompt needs a start "
                f"token; several prompts are a list of lists){here()}"
            )
        out.append([int(token) for token in tokens])
    if not out:
        raise ValueError(
            f"{who}: needed at least one prompt, got an empty list (pass [[1]], for example)"
            f"{here()}"
        )
    return out


def rounded(count: int) -> int:
    """Round up a number of tokens, so that there are few different sizes and little padding.

    The results are multiples of 8. For more than 64 tokens, at most 1/8 of the tokens is added.
    """
    step = max(8, 1 << max(0, (count - 1).bit_length() - 4))
    return -(-count // step) * step


def slots_needed(prompts: Sequence[Sequence[int]], limit: int, ahead: int) -> int:
    """Return the number of slots for prompts, `limit` more tokens and `ahead` proposed tokens."""
    longest = max(map(len, prompts))
    return rounded(max(longest + limit + ahead, _padded_end(longest, CHUNK)))


def _padded_end(count: int, chunk: int) -> int:
    """Return the end of the last chunk of `count` tokens, including its padding."""
    last = count % chunk
    return count - last + (rounded(last) if last else 0)


def read(
    decoder: Decoder, variables: PyTree, prompts: Sequence[Sequence[int]], slots: int,
    chunk: int = CHUNK,
) -> tuple[Array, PyTree]:  # fmt: skip
    """Return the logits after each prompt, [batch, vocabulary], and a cache with the prompts."""
    groups: dict[int, list[int]] = {}
    for row, prompt in enumerate(prompts):
        groups.setdefault(_padded_end(len(prompt), chunk), []).append(row)
    if len(groups) == 1:
        return _group(decoder, variables, prompts, slots, chunk)
    cache = empty_cache(decoder, variables, len(prompts), slots)
    logits = []
    for rows in groups.values():
        last, part = _group(decoder, variables, [prompts[row] for row in rows], slots, chunk)
        cache = _place(decoder, cache, jnp.asarray(rows), part)
        logits.append(last)
    order = np.argsort([row for rows in groups.values() for row in rows])
    return jnp.concatenate(logits)[order], cache


def _group(
    decoder: Decoder, variables: PyTree, prompts: Sequence[Sequence[int]], slots: int, chunk: int
) -> tuple[Array, PyTree]:
    """Read prompts whose rounded lengths are equal."""
    cache = empty_cache(decoder, variables, len(prompts), slots)
    *before, last = chunks(prompts, chunk)
    for tokens, positions in before:
        cache = store(decoder, variables, cache, tokens, positions)
    return store_last(decoder, variables, cache, *last)


def chunks(
    prompts: Sequence[Sequence[int]], chunk: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield tokens and positions of the prompts, padded with -1."""
    longest = max(map(len, prompts))
    for start in range(0, longest, chunk):
        size = min(rounded(longest - start), chunk)
        tokens = np.zeros((len(prompts), size), np.int32)
        positions = np.full(tokens.shape, -1, np.int32)
        for row, prompt in enumerate(prompts):
            part = prompt[start : start + size]
            tokens[row, : len(part)] = part
            positions[row, : len(part)] = np.arange(start, start + len(part))
        yield tokens, positions


@functools.partial(compiled, static_argnums=0, donate_argnums=2)
def store(
    decoder: Decoder, variables: PyTree, cache: PyTree, tokens: Array, positions: Array
) -> PyTree:
    """Store tokens in the cache; the logits are not computed."""
    return decoder.apply(variables, cache, tokens, positions)[1]


@functools.partial(compiled, static_argnums=0, donate_argnums=2)
def store_last(
    decoder: Decoder, variables: PyTree, cache: PyTree, tokens: Array, positions: Array
) -> tuple[Array, PyTree]:
    """Store the last chunk of the prompts; return the logits after them, and the cache."""
    return last_logits(decoder, variables, cache, tokens, positions)


@functools.partial(compiled, static_argnums=0, donate_argnums=1)
def _place(decoder: Decoder, cache: PyTree, rows: Array, part: PyTree) -> PyTree:
    return put_rows(decoder, cache, rows, part)
