"""The loop that draws tokens. It is one compiled program, and each row has its own position."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from toile import api, lax, random, struct
from toile import numpy as jnp
from toile.dtypes import issubdtype, prng_key
from toile.engine.annotations import Array, PyTree
from toile.generation.compiled_programs import compiled
from toile.generation.decoders import Decoder
from toile.generation.samplers import Sampler, draw


class Rows(struct.PyTreeNode):
    """The state of all rows: their tokens so far, and when they end."""

    tokens: Any  # [batch, length], -1 after the last token
    counts: Any  # [batch], numbers of tokens, including those of the prompt
    limits: Any  # [batch], counts at which the rows end
    ended: Any  # [batch]
    keys: Any  # [batch], random keys


def start(
    prompts: Sequence[Sequence[int]], limits: Sequence[int], length: int, keys: Array
) -> Rows:
    """Return the initial state of rows with at most `length` tokens each."""
    tokens = np.full((len(prompts), length), -1, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = prompt
    counts = np.array([len(prompt) for prompt in prompts], np.int32)
    limits_ = counts + np.array(limits, np.int32)
    return Rows(tokens, counts, limits_, limits_ <= counts, keys)


def row_keys(key: Any, count: int) -> Array:
    """Return a key for each row: the given keys, or keys derived from a single one."""
    if key is None:
        key = random.key(0)
    if key.ndim == (0 if issubdtype(key.dtype, prng_key) else 1):
        return _folded(key, count)
    return key


@functools.partial(compiled, static_argnums=1)
def _folded(key: Array, count: int) -> Array:
    return api.vmap(lambda i: random.fold_in(key, i))(jnp.arange(count))


def last_tokens(rows: Rows) -> tuple[Array, Array]:
    """Return the last token of each row, and its position or -1 if the row has ended."""
    at = jnp.maximum(rows.counts - 1, 0)
    tokens = jnp.take_along_axis(jnp.asarray(rows.tokens), at[:, None], axis=1)
    return tokens, jnp.where(rows.ended, -1, at)[:, None]


def appended(rows: Rows, new: Array, stops: Array) -> Rows:
    """Append one token to each row that has not ended."""
    length = rows.tokens.shape[1]
    places = jnp.where(rows.ended, length, rows.counts)  # nothing is stored after the end
    index = jnp.arange(len(new))
    tokens = jnp.asarray(rows.tokens).at[index, places].set(new, mode="drop")
    counts = rows.counts + ~rows.ended
    ended = rows.ended | jnp.isin(new, stops) | (counts >= rows.limits)
    return rows.replace(tokens=tokens, counts=counts, ended=ended)


def _with_token(rows: Rows, logits: Array, sampler: Sampler, stops: Array) -> Rows:
    """Draw a token for each row that has not ended, and append it."""
    keys = api.vmap(random.fold_in)(rows.keys, rows.counts)
    new = draw(sampler, keys, logits.astype(jnp.float32), jnp.asarray(rows.tokens))
    return appended(rows, new, stops)


# The first token of each row: `logits` are those after the prompts.
begin = compiled(_with_token)


@functools.partial(compiled, static_argnums=0, donate_argnums=2)
def advance(
    decoder: Decoder, variables: PyTree, cache: PyTree, rows: Rows, sampler: Sampler,
    stops: Array, steps: Any,
) -> tuple[PyTree, Rows]:  # fmt: skip
    """Append up to `steps` tokens to each row, until all rows have ended."""

    def step(state: Any) -> Any:
        i, cache, rows = state
        tokens, positions = last_tokens(rows)
        logits, cache = decoder.apply(variables, cache, tokens, positions)
        return i + 1, cache, _with_token(rows, logits[:, 0], sampler, stops)

    def more(state: Any) -> Array:
        return (state[0] < steps) & ~jnp.all(state[2].ended)

    _, cache, rows = lax.while_loop(more, step, (jnp.int32(0), cache, rows))
    return cache, rows
