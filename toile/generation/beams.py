"""Beam search: keep the most likely continuations of each prompt, in one compiled loop."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from toile import lax, struct
from toile import numpy as jnp
from toile.engine.annotations import Array, PyTree
from toile.engine.source import here
from toile.generation import prompts as reading
from toile.generation.compiled_programs import compiled
from toile.generation.decoders import Decoder, decoder_of, take_rows
from toile.linen.module import Module
from toile.nn import log_softmax, logsumexp


@dataclasses.dataclass(frozen=True)
class Beam:
    """A continuation that beam search has found.

    Args:
        tokens: the tokens of the continuation, without the stop token.
        score: the logarithm of the continuation's probability, divided by
            `length ** length_penalty`. If the continuation ends with a stop token, `length`
            includes this token, and the probability includes the total probability of all stop
            tokens at this position.
        reason: `"stop"` if a stop token ended the continuation; `"length"` if `max_tokens` was
            reached.

    >>> from toile import generation
    >>> generation.Beam([3, 4], -0.5, "stop").tokens
    [3, 4]
    """

    tokens: list[int]
    score: float
    reason: str


class _State(struct.PyTreeNode):
    """Unfinished beams with their caches, and the best finished beams; [batch, beams, ...]."""

    step: Any
    cache: Any
    tokens: Any
    totals: Any  # logarithms of probabilities
    last: Any  # the last token of each beam, and its position
    positions: Any
    found: Any  # finished beams: tokens, scores and lengths
    scores: Any
    lengths: Any


def beam_search(
    model: Module | Decoder, variables: PyTree, prompts: Sequence[Sequence[int]], *,
    max_tokens: int, beams: int = 4, stop_tokens: Iterable[int] = (),
    length_penalty: float = 1.0,
) -> list[list[Beam]]:  # fmt: skip
    """Find likely continuations of prompts.

    In each step, every unfinished continuation is extended by every possible token, and the
    `beams` most likely results are kept. Continuations that end with a stop token are finished and
    stored separately. The search for a prompt ends after `max_tokens` tokens, or when no unfinished
    continuation can become better than the finished ones.

    Args:
        model: a linen module that stores what it has read in the collection `cache`, or a
            `Decoder`, as for `generate`.
        variables: the model's variables, `{"params": ...}`.
        prompts: list of prompts, each of which is a list of at least one token.
        max_tokens: largest number of tokens in a continuation, including the stop token.
        beams: number of continuations that are kept in each step.
        stop_tokens: tokens that end a continuation.
        length_penalty: exponent of the length in the score, at least 0. With 0, continuations are
            compared by their probabilities; larger values favor long continuations.

    Returns:
        For each prompt, a list of up to `beams` continuations, best first.

    Raises:
        ValueError: a number is out of range, or a prompt is empty.

    >>> from toile import generation
    >>> class Successor:  # a decoder without parameters
    ...     rings = False
    ...     def empty(self, batch, length):
    ...         return jnp.zeros((batch, length))
    ...     def apply(self, variables, cache, tokens, positions):
    ...         return 9 * toile.nn.one_hot(tokens + 1, 10), cache
    >>> found = generation.beam_search(Successor(), {}, [[2]], max_tokens=4, stop_tokens=[5])
    >>> found[0][0].tokens, found[0][0].reason
    ([3, 4], 'stop')
    """
    rows = reading.checked(prompts, "beam_search")
    for name, value, low in (
        ("max_tokens", max_tokens, 1), ("beams", beams, 1), ("length_penalty", length_penalty, 0)
    ):  # fmt: skip
        if not isinstance(value, (int, float) if low == 0 else int) or not value >= low:
            raise ValueError(
                f"beam_search: needed a number from {low}, got {name}={value!r} (leave it out for "
                f"the usual value, or pass 4){here()}"
            )
    decoder = decoder_of(model)
    slots = reading.slots_needed(rows, max_tokens, 0)
    logits, cache = reading.read(decoder, variables, rows, slots)
    stops = np.array(sorted(set(stop_tokens)), np.int32)
    positions = np.array([len(prompt) - 1 for prompt in rows], np.int32)
    tokens, scores, lengths = _search(
        decoder, beams, max_tokens, variables, cache, logits, positions, stops,
        float(length_penalty),
    )  # fmt: skip
    return _results(np.asarray(tokens), np.asarray(scores), np.asarray(lengths), stops)


def _results(
    tokens: np.ndarray, scores: np.ndarray, lengths: np.ndarray, stops: np.ndarray
) -> list[list[Beam]]:
    out = []
    for i in range(len(tokens)):
        row = []
        for beam in np.argsort(-scores[i], kind="stable"):
            found = tokens[i, beam, : lengths[i, beam]].tolist()
            stopped = bool(found) and found[-1] in stops
            if np.isfinite(scores[i, beam]):
                reason = "stop" if stopped else "length"
                row.append(Beam(found[: len(found) - stopped], float(scores[i, beam]), reason))
        out.append(row)
    return out


@functools.partial(compiled, static_argnums=(0, 1, 2))
def _search(
    decoder: Decoder, beams: int, limit: int, variables: PyTree, cache: PyTree, logits: Array,
    positions: Array, stops: Array, penalty: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return tokens, scores and lengths of the best finished beams."""
    batch = len(logits)
    shape = (batch, beams)
    # All beams are equal at the start, so only one of them gets a positive probability.
    totals = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)
    spread = jnp.repeat(jnp.arange(batch), beams)
    cache = take_rows(decoder, cache, spread)
    state = _State(
        jnp.int32(0),
        cache,
        jnp.zeros((*shape, limit), jnp.int32),
        jnp.broadcast_to(totals, shape),
        jnp.zeros(shape, jnp.int32),
        jnp.repeat(positions, beams).reshape(shape),
        jnp.zeros((*shape, limit), jnp.int32),
        jnp.full(shape, -jnp.inf),
        jnp.zeros(shape, jnp.int32),
    )

    def extend(state: _State) -> _State:
        flat = lambda x: x.reshape(batch * beams, 1)
        logits, cache = decoder.apply(
            variables, state.cache, flat(state.last), flat(state.positions)
        )
        return _extended(decoder, stops, penalty, state, logits[:, 0], cache)

    def more(state: _State) -> Array:
        # The scores of unfinished beams are at most their totals divided by the largest length.
        best = state.totals.max(axis=1) / jnp.float32(limit) ** penalty
        return (state.step < limit) & jnp.any(best > state.scores.min(axis=1))

    state = _extended(decoder, stops, penalty, state, logits[spread], cache)
    state = lax.while_loop(more, extend, state)
    # Beams that are unfinished at the limit are compared with the finished ones.
    full = state.step >= limit
    scores = jnp.where(full, state.totals / jnp.float32(limit) ** penalty, -jnp.inf)
    lengths = jnp.full(shape, limit, jnp.int32)
    return _best(
        beams, [state.found, state.tokens], [state.scores, scores], [state.lengths, lengths]
    )


def _extended(
    decoder: Decoder, stops: Array, penalty: Array, state: _State, logits: Array, cache: PyTree
) -> _State:
    """Extend the beams by tokens with the logits [batch * beams, vocabulary]."""
    batch, beams = state.totals.shape
    chances = log_softmax(logits.astype(jnp.float32), axis=-1)
    if len(stops):  # one token represents all ways to end
        end = logsumexp(chances[:, stops], axis=-1)
        chances = chances.at[:, stops].set(-jnp.inf).at[:, stops[0]].set(end)
    size = chances.shape[-1]
    totals = (state.totals[..., None] + chances.reshape(batch, beams, size)).reshape(batch, -1)
    # Only one candidate of each beam is finished, so at least half of `2 * beams` are unfinished.
    count = min(2 * beams, beams * size)
    totals, chosen = lax.top_k(totals, count)
    parents, last = chosen // size, (chosen % size).astype(jnp.int32)
    tokens = jnp.take_along_axis(state.tokens, parents[..., None], axis=1)
    tokens = tokens.at[:, :, state.step].set(last)
    ended, length = jnp.isin(last, stops), state.step + 1
    scores = jnp.where(ended, totals / length.astype(jnp.float32) ** penalty, -jnp.inf)
    found, found_scores, lengths = _best(
        beams, [state.found, tokens], [state.scores, scores],
        [state.lengths, jnp.broadcast_to(length, scores.shape)],
    )  # fmt: skip
    totals, places = lax.top_k(jnp.where(ended, -jnp.inf, totals), beams)
    take = lambda x: jnp.take_along_axis(x, places, axis=1)
    rows = (beams * jnp.arange(batch)[:, None] + take(parents)).reshape(-1)
    return state.replace(
        step=length, cache=take_rows(decoder, cache, rows), totals=totals, last=take(last),
        tokens=jnp.take_along_axis(tokens, places[..., None], axis=1),
        positions=state.positions + 1, found=found, scores=found_scores, lengths=lengths,
    )  # fmt: skip


def _best(
    count: int, tokens: list[Array], scores: list[Array], lengths: list[Array]
) -> tuple[Array, Array, Array]:
    """Return the best of two groups of beams."""
    top, places = lax.top_k(jnp.concatenate(scores, axis=1), count)
    joined = jnp.concatenate(tokens, axis=1)
    return (
        jnp.take_along_axis(joined, places[..., None], axis=1), top,
        jnp.take_along_axis(jnp.concatenate(lengths, axis=1), places, axis=1),
    )  # fmt: skip
