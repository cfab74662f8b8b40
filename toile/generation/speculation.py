"""Speculative decoding: a small model proposes tokens, and a large one checks several at once.

Let p and q be the distributions of the two models, after the sampler. A proposed token x is kept
with probability min(1, p(x) / q(x)). The first token that is not kept is replaced by one that is
drawn from the positive part of p - q. The resulting tokens have exactly the distribution p.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from toile import api, lax, random
from toile import numpy as jnp
from toile.engine.annotations import Array, PyTree
from toile.engine.source import describe, here
from toile.generation.compiled_programs import compiled
from toile.generation.decoders import Decoder, decoder_of
from toile.generation.samplers import Sampler, drawn
from toile.generation.sampling_loop import Rows, last_tokens
from toile.linen.module import Module
from toile.nn import log_softmax, softmax


@dataclasses.dataclass(frozen=True, eq=False)
class Draft:
    """A smaller model that proposes tokens for speculative decoding.

    In each step, the draft model proposes `count` tokens, one after the other, and the large model
    reads all of them at once. The large model accepts some of them, starting with the first, and
    adds another token. The tokens have the same distribution as without the draft model; without a
    sampler, they are the same tokens. Speculative decoding saves time only if the draft model is
    much faster and often proposes likely tokens.

    Args:
        model: the draft model: a linen module or a `Decoder`. It must have the same vocabulary as
            the large model.
        variables: the draft model's variables, `{"params": ...}`.
        count: number of tokens that are proposed in each step.

    Raises:
        ValueError: `count` is less than 1.

    >>> from toile import generation
    >>> class Successor:  # a decoder without parameters
    ...     rings = False
    ...     def empty(self, batch, length):
    ...         return jnp.zeros((batch, length))
    ...     def apply(self, variables, cache, tokens, positions):
    ...         return toile.nn.one_hot(tokens + 1, 10), cache
    >>> draft = generation.Draft(Successor(), {}, count=2)
    >>> generation.generate(Successor(), {}, [[2]], max_tokens=4, draft=draft)[0].tokens
    [3, 4, 5, 6]
    """

    model: Module | Decoder
    variables: PyTree
    count: int = 4

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(
                f"Draft: needed a number of tokens >= 1, got count={self.count!r} (4 is usual)"
                f"{here()}"
            )
        decoder_of(self.model)

    @property
    def decoder(self) -> Decoder:
        """The draft model as a decoder."""
        return decoder_of(self.model)


@functools.partial(compiled, static_argnums=(0, 1, 2), donate_argnums=4)
def advance_with_draft(
    decoder: Decoder, draft: Decoder, count: int, variables: tuple[PyTree, PyTree],
    caches: tuple[PyTree, PyTree], rows: Rows, sampler: Sampler, stops: Array, steps: Any,
) -> tuple[PyTree, PyTree, Rows]:  # fmt: skip
    """Append tokens to each row in up to `steps` rounds, until all rows have ended."""

    def step(state: Any) -> Any:
        i, cache, drafts, rows = state
        keys = api.vmap(random.fold_in)(rows.keys, rows.counts)
        keys = api.vmap(lambda key: random.split(key, count + 2))(keys)
        proposed, q, drafts = _propose(draft, variables[1], drafts, rows, sampler, keys, count)
        tokens, positions = last_tokens(rows)
        tokens = jnp.concatenate([tokens, proposed], axis=1)
        ahead = jnp.arange(count + 1)
        positions = jnp.where(positions < 0, -1, positions + ahead)
        logits, cache = decoder.apply(variables[0], cache, tokens, positions)
        _check_vocabularies(logits, q)
        extended = _with(rows, proposed)
        p = [
            sampler(logits[:, j].astype(jnp.float32), _before(extended, rows.counts + j))
            for j in range(count + 1)
        ]
        new, kept = _verified(jnp.stack(p, axis=1), q, proposed, keys[:, count:])
        return i + 1, cache, drafts, _accepted(rows, new, kept + 1, stops)

    def more(state: Any) -> Array:
        return (state[0] < steps) & ~jnp.all(state[3].ended)

    start = (jnp.int32(0), *caches, rows)
    _, cache, drafts, rows = lax.while_loop(more, step, start)
    return cache, drafts, rows


def _propose(
    draft: Decoder, variables: PyTree, cache: PyTree, rows: Rows, sampler: Sampler, keys: Array,
    count: int,
) -> tuple[Array, Array, PyTree]:  # fmt: skip
    """Draw `count` tokens from the draft model; return them, their logits, and the cache.

    The last token is also read, because it must be in the cache if all tokens are kept."""
    token, position = last_tokens(rows)
    history = jnp.asarray(rows.tokens)
    index = jnp.arange(len(token))
    tokens, q = [], []
    for j in range(count + 1):
        at = jnp.where(position < 0, -1, position + j)
        logits, cache = draft.apply(variables, cache, token, at)
        if j < count:
            q.append(sampler(logits[:, 0].astype(jnp.float32), history))
            new = drawn(keys[:, j], q[-1])
            history = history.at[index, rows.counts + j].set(new, mode="drop")
            tokens.append(new)
            token = new[:, None]
    return jnp.stack(tokens, axis=1), jnp.stack(q, axis=1), cache


def _verified(p: Array, q: Array, proposed: Array, keys: Array) -> tuple[Array, Array]:
    """Return the tokens [batch, count + 1] of a round, and how many proposed tokens are kept.

    `p` and `q` are logits of shape (batch, count + 1, vocabulary) and (batch, count, vocabulary).
    """
    count = proposed.shape[1]
    chance = lambda logits: jnp.take_along_axis(
        log_softmax(logits, axis=-1), proposed[..., None], axis=-1
    )[..., 0]
    u = api.vmap(lambda key: random.uniform(key, (count,)))(keys[:, 0])
    agreed = jnp.log(u) < chance(p[:, :count]) - chance(q)
    kept = jnp.cumprod(agreed.astype(jnp.int32), axis=1).sum(axis=1)
    at = lambda x: jnp.take_along_axis(x, kept[:, None, None], axis=1)[:, 0]
    nothing = jnp.full_like(q[:, :1], -jnp.inf)  # nothing was proposed after the last token
    last = at(p)
    proposals = at(jnp.concatenate([q, nothing], axis=1))
    finite = jnp.isfinite(proposals).any(axis=-1, keepdims=True)
    proposals = jnp.where(finite, softmax(jnp.where(finite, proposals, 0), axis=-1), 0)
    rest = jnp.maximum(softmax(last, axis=-1) - proposals, 0)
    # If p and q are equal up to rounding, the positive part is 0, and p itself is used.
    rest = jnp.where(rest.sum(axis=-1, keepdims=True) > 0, jnp.log(rest), last)
    own = drawn(keys[:, 1], rest)
    padded = jnp.concatenate([proposed, proposed[:, :1]], axis=1)
    return jnp.where(jnp.arange(count + 1) == kept[:, None], own[:, None], padded), kept


def _with(rows: Rows, new: Array) -> Array:
    """Return the tokens of the rows, followed by the new ones."""
    index = jnp.arange(len(new))[:, None]
    places = rows.counts[:, None] + jnp.arange(new.shape[1])
    return jnp.asarray(rows.tokens).at[index, places].set(new, mode="drop")


def _before(tokens: Array, counts: Array) -> Array:
    """Return the first tokens of each row, padded with -1."""
    return jnp.where(jnp.arange(tokens.shape[1]) < counts[:, None], tokens, -1)


def _accepted(rows: Rows, new: Array, count: Array, stops: Array) -> Rows:
    """Append the first `count` of the new tokens, up to a stop token and up to the limit."""
    stop = jnp.isin(new, stops)
    first_stop = jnp.where(stop.any(axis=1), stop.argmax(axis=1) + 1, new.shape[1] + 1)
    stopped = first_stop <= count
    count = jnp.minimum(jnp.minimum(count, first_stop), rows.limits - rows.counts)
    count = jnp.where(rows.ended, 0, count)
    counts = rows.counts + count
    tokens = jnp.where(rows.ended[:, None], rows.tokens, _before(_with(rows, new), counts))
    ended = rows.ended | stopped | (counts >= rows.limits)
    return rows.replace(tokens=tokens, counts=counts, ended=ended)


def _check_vocabularies(logits: Array, q: Array) -> None:
    if logits.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"Draft: needed a draft model with the same vocabulary, got {describe(logits)} from "
            f"the model and {describe(q)} from the draft model (use models with one tokenizer)"
            f"{here()}"
        )
