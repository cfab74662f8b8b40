"""Samplers: functions that change logits, and with them the probabilities of the next tokens.

A sampler is a function `f(logits, tokens)`. `logits` has shape (batch, vocabulary) and dtype
float32. `tokens` has shape (batch, length); each row contains the prompt and the tokens generated
so far, padded with -1. The result has the same shape as `logits`. A token whose logit is -inf is
never drawn.

The samplers in this module are tree nodes whose leaves are their parameters. A compiled program can
therefore be used with any parameters. A parameter may be an array with one value for each row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from toile import api, random, struct
from toile import numpy as jnp
from toile.engine.annotations import Array, ArrayLike
from toile.engine.source import describe, here
from toile.engine.trace import Array as ArrayClass
from toile.nn import softmax

Sampler = Callable[[Array, Array], Array]


@struct.dataclass
class _Greedy:
    def __call__(self, logits: Array, tokens: Array) -> Array:
        return _only_best(logits)


@struct.dataclass
class _Temperature:
    value: Any

    def __call__(self, logits: Array, tokens: Array) -> Array:
        t = _column(self.value)
        return jnp.where(t == 0, _only_best(logits), logits / jnp.where(t == 0, 1, t))


@struct.dataclass
class _TopK:
    count: Any

    def __call__(self, logits: Array, tokens: Array) -> Array:
        size = logits.shape[-1]
        last = jnp.clip(_column(self.count), 1, size).astype(jnp.int32) - 1
        ordered = jnp.sort(logits, axis=-1, descending=True)
        last = jnp.broadcast_to(last, (*logits.shape[:-1], 1))
        return _at_least(logits, jnp.take_along_axis(ordered, last, axis=-1))


@struct.dataclass
class _TopP:
    mass: Any

    def __call__(self, logits: Array, tokens: Array) -> Array:
        ordered = jnp.sort(logits, axis=-1, descending=True)
        probabilities = softmax(ordered, axis=-1)
        before = jnp.cumsum(probabilities, axis=-1) - probabilities
        kept = (before < _column(self.mass)).at[..., 0].set(True)
        least = jnp.where(kept, ordered, jnp.inf).min(axis=-1, keepdims=True)
        return _at_least(logits, jnp.where(_column(self.mass) >= 1, -jnp.inf, least))


@struct.dataclass
class _MinP:
    ratio: Any

    def __call__(self, logits: Array, tokens: Array) -> Array:
        most = logits.max(axis=-1, keepdims=True)
        return _at_least(logits, most + jnp.log(_column(self.ratio)))


@struct.dataclass
class _RepetitionPenalty:
    factor: Any

    def __call__(self, logits: Array, tokens: Array) -> Array:
        r = _column(self.factor)
        less = jnp.where(logits > 0, logits / r, logits * r)
        return jnp.where(_counts(logits, tokens) > 0, less, logits)


@struct.dataclass
class _OccurrencePenalty:
    presence: Any
    frequency: Any

    def __call__(self, logits: Array, tokens: Array) -> Array:
        counts = _counts(logits, tokens)
        once = _column(self.presence) * (counts > 0)
        return logits - once - _column(self.frequency) * counts


@struct.dataclass
class _Chain:
    samplers: tuple

    def __call__(self, logits: Array, tokens: Array) -> Array:
        for sampler in self.samplers:
            logits = sampler(logits, tokens)
        return logits


@struct.dataclass
class _Function:
    """A user's function, which is part of the tree structure and not a leaf."""

    function: Sampler = struct.field(pytree_node=False)

    def __call__(self, logits: Array, tokens: Array) -> Array:
        return self.function(logits, tokens)


_OWN = (
    _Greedy, _Temperature, _TopK, _TopP, _MinP, _RepetitionPenalty, _OccurrencePenalty, _Chain,
    _Function,
)  # fmt: skip


def chain(*samplers: Sampler) -> Sampler:
    """Combine samplers into one sampler that applies them one after another.

    Args:
        *samplers: functions `f(logits, tokens)` that return new logits. They are applied in this
            order.

    Returns:
        A sampler.

    >>> from toile import generation
    >>> sampler = generation.chain(generation.temperature(0.5), generation.top_k(2))
    >>> sampler(jnp.array([[1.0, 2.0, 3.0]]), jnp.array([[0]]))
    Array([[-inf,   4.,   6.]], dtype=float32)
    """
    return _Chain(tuple(map(sampler_of, samplers)))


def greedy() -> Sampler:
    """Keep only the most likely token, or the first one of several equally likely tokens.

    Returns:
        A sampler.

    >>> from toile import generation
    >>> generation.greedy()(jnp.array([[1.0, 3.0, 3.0]]), jnp.array([[0]]))
    Array([[-inf,   3., -inf]], dtype=float32)
    """
    return _Greedy()


def temperature(value: ArrayLike) -> Sampler:
    """Divide the logits by a temperature; temperatures below 1 favor likely tokens.

    Args:
        value: the temperature, at least 0, or an array with one temperature for each row. With a
            temperature of 0, only the most likely token is kept, as with `greedy`.

    Returns:
        A sampler.

    Raises:
        ValueError: the temperature is negative or not finite.

    >>> from toile import generation
    >>> generation.temperature(0.5)(jnp.array([[1.0, 2.0]]), jnp.array([[0]]))
    Array([[2., 4.]], dtype=float32)
    """
    return _Temperature(_checked("temperature", "value", value, 0, math.inf))


def top_k(count: ArrayLike) -> Sampler:
    """Keep only the most likely tokens.

    Args:
        count: number of tokens to keep, at least 1, or an array with one number for each row.
            Tokens that are as likely as the least likely of these are also kept.

    Returns:
        A sampler.

    Raises:
        ValueError: the number is less than 1.

    >>> from toile import generation
    >>> generation.top_k(2)(jnp.array([[1.0, 3.0, 2.0]]), jnp.array([[0]]))
    Array([[-inf,   3.,   2.]], dtype=float32)
    """
    return _TopK(_checked("top_k", "count", count, 1, math.inf))


def top_p(mass: ArrayLike) -> Sampler:
    """Keep the smallest set of most likely tokens whose total probability reaches a limit.

    Args:
        mass: the limit, greater than 0 and at most 1, or an array with one limit for each row. The
            most likely token is always kept. Tokens that are as likely as the least likely token in
            the set are also kept.

    Returns:
        A sampler.

    Raises:
        ValueError: the limit is not greater than 0, or it is greater than 1.

    >>> from toile import generation
    >>> logits = jnp.log(jnp.array([[0.5, 0.2, 0.3]]))
    >>> toile.nn.softmax(generation.top_p(0.7)(logits, jnp.array([[0]])))
    Array([[0.625, 0.   , 0.375]], dtype=float32)
    """
    return _TopP(_checked("top_p", "mass", mass, 0, 1, above=True))


def min_p(ratio: ArrayLike) -> Sampler:
    """Remove tokens that are much less likely than the most likely token.

    Args:
        ratio: a number from 0 to 1, or an array with one number for each row. A token is kept if
            its probability is at least `ratio` times the highest probability.

    Returns:
        A sampler.

    Raises:
        ValueError: the number is less than 0 or greater than 1.

    >>> from toile import generation
    >>> logits = jnp.log(jnp.array([[0.5, 0.1, 0.4]]))
    >>> generation.min_p(0.5)(logits, jnp.array([[0]])) > -jnp.inf
    Array([[ True, False,  True]], dtype=bool)
    """
    return _MinP(_checked("min_p", "ratio", ratio, 0, 1))


def repetition_penalty(factor: ArrayLike) -> Sampler:
    """Make tokens less likely if the prompt or the continuation already contains them.

    Args:
        factor: number greater than 0, or an array with one number for each row. The positive logits
            of such tokens are divided by the factor, and the negative ones are multiplied by it. A
            factor of 1 changes nothing.

    Returns:
        A sampler.

    Raises:
        ValueError: the factor is not greater than 0.

    >>> from toile import generation
    >>> generation.repetition_penalty(2.0)(jnp.array([[1.0, 1.0, -1.0]]), jnp.array([[2, 0, -1]]))
    Array([[ 0.5,  1. , -2. ]], dtype=float32)
    """
    return _RepetitionPenalty(
        _checked("repetition_penalty", "factor", factor, 0, math.inf, above=True)
    )


def occurrence_penalty(presence: ArrayLike = 0.0, frequency: ArrayLike = 0.0) -> Sampler:
    """Subtract penalties from the logits of tokens that the prompt or continuation contains.

    Args:
        presence: number that is subtracted once from the logit of each token that occurs, or an
            array with one number for each row.
        frequency: number that is subtracted once for each occurrence of the token, or an array with
            one number for each row.

    Returns:
        A sampler.

    Raises:
        ValueError: a penalty is not finite.

    >>> from toile import generation
    >>> sampler = generation.occurrence_penalty(presence=0.5, frequency=1.0)
    >>> sampler(jnp.array([[3.0, 3.0, 3.0]]), jnp.array([[2, 0, 2, -1]]))
    Array([[1.5, 3. , 0.5]], dtype=float32)
    """
    who = "occurrence_penalty"
    return _OccurrencePenalty(
        _checked(who, "presence", presence, -math.inf, math.inf),
        _checked(who, "frequency", frequency, -math.inf, math.inf),
    )


def sampler_of(sampler: Any) -> Sampler:
    """Return a sampler as a tree node; None means `greedy`."""
    if sampler is None:
        return _Greedy()
    if isinstance(sampler, _OWN):
        return sampler
    if not callable(sampler):
        raise TypeError(
            f"generation: needed a sampler, that is, a function f(logits, tokens), got "
            f"{describe(sampler)} (pass temperature(0.7) or chain(...), for example){here()}"
        )
    return _Function(sampler)


def is_greedy(sampler: Sampler) -> bool:
    """Whether the sampler keeps only one token, so that no random number is needed."""
    if isinstance(sampler, _Chain):
        return bool(sampler.samplers) and is_greedy(sampler.samplers[-1])
    return isinstance(sampler, _Greedy)


def draw(sampler: Sampler, keys: Array, logits: Array, tokens: Array) -> Array:
    """Draw one token for each row, with a key for each row."""
    if is_greedy(sampler):
        return _compared(sampler, logits, tokens).argmax(axis=-1).astype(jnp.int32)
    return drawn(keys, sampler(logits, tokens))


def _compared(sampler: Sampler, logits: Array, tokens: Array) -> Array:
    """Return the logits of which a greedy sampler keeps the largest."""
    while isinstance(sampler, _Chain):
        *earlier, sampler = sampler.samplers
        for function in earlier:
            logits = function(logits, tokens)
    return logits


def drawn(keys: Array, logits: Array) -> Array:
    """Draw one token for each row of logits, with a key for each row."""
    noise = _gumbel(keys, logits.shape[-1])
    return (logits + noise).argmax(axis=-1).astype(jnp.int32)


def _gumbel(keys: Array, size: int) -> Array:
    return api.vmap(lambda key: random.gumbel(key, (size,), jnp.float32))(keys)


def _only_best(logits: Array) -> Array:
    best = logits.argmax(axis=-1)[..., None] == jnp.arange(logits.shape[-1])
    return jnp.where(best, logits, -jnp.inf)


def _at_least(logits: Array, least: Array) -> Array:
    return jnp.where(logits >= least, logits, -jnp.inf)


def _column(value: Any) -> Array:
    """Return a parameter as an array that broadcasts against logits."""
    value = jnp.asarray(value)
    return value[:, None] if value.ndim else value


def _counts(logits: Array, tokens: Array) -> Array:
    """Count the occurrences of each token in each row."""
    rows = jnp.arange(len(tokens))[:, None]
    size = logits.shape[-1]
    places = jnp.where(tokens < 0, size, tokens)  # padding is dropped
    return jnp.zeros(logits.shape, jnp.int32).at[rows, places].add(1, mode="drop")


def _checked(
    who: str, name: str, value: Any, low: float, high: float, *, above: bool = False
) -> Any:
    """Check a parameter unless it is a toile array."""
    if isinstance(value, ArrayClass):
        return value
    given = np.asarray(value)
    good = given.dtype.kind in "iuf" and given.ndim <= 1
    good = good and bool(np.all(np.isfinite(given) & (given >= low) & (given <= high)))
    if not good or (above and not np.all(given > low)):
        start = f"greater than {low}" if above else f"at least {low}" if low > -math.inf else ""
        end = f"at most {high}" if high < math.inf else ""
        bounds = " and ".join(filter(None, (start, end))) or "finite"
        raise ValueError(
            f"{who}: needed a number {bounds}, or an array of such numbers, got {value!r} as "
            f"`{name}`{here()}"
        )
    return value
