"""Greedy completion: a loop that appends the most likely token, using a cache."""

import functools

import numpy as np

import toile
import toile.numpy as jnp
from toile import lax


def padded(prompts: list[list[int]], pad: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return prompts of different lengths as an array with padding on the left, and its mask."""
    length = max(map(len, prompts))
    tokens = np.full((len(prompts), length), pad, np.int32)
    mask = np.zeros((len(prompts), length), bool)
    for i, prompt in enumerate(prompts):
        tokens[i, length - len(prompt) :] = prompt
        mask[i, length - len(prompt) :] = True
    return tokens, mask


def until(tokens: list[int], ends: tuple[int, ...]) -> list[int]:
    """Return the tokens before the first one that ends a completion."""
    stop = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:stop]


def empty_cache(model, variables, *inputs, **options):
    """Return a cache of zeros with one slot for each column of the last one of `inputs`."""

    def make(variables):
        return model.apply(variables, *inputs, decode=True, mutable=["cache"], **options)[1]

    shapes = toile.eval_shape(make, variables)["cache"]
    return toile.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


@functools.partial(toile.jit, static_argnames=("model", "steps", "ends", "pad"))
def complete(model, variables, tokens, mask, *, steps, ends=(), pad=0):
    """Append `steps` tokens to prompts [batch, length] with padding on the left.

    A token in `ends` ends a completion; the rest of its row is filled with `pad`.
    """
    batch, length = tokens.shape
    room = jnp.zeros((batch, length + steps), jnp.int32)

    def run(cache, tokens, mask):
        logits, new = model.apply(
            {**variables, "cache": cache}, tokens, mask, decode=True, last=True, mutable=["cache"]
        )
        return logits[:, -1], new["cache"]

    logits, cache = run(empty_cache(model, variables, room), tokens, mask)
    return _loop(run, logits, cache, steps, ends, pad)


def _loop(run, logits, cache, steps, ends, pad):
    """Append the most likely token `steps` times, starting with the `logits` of the first."""

    def chosen(logits, ended):
        token = jnp.where(ended, pad, logits.argmax(axis=-1))
        return token, ended | jnp.isin(token, jnp.asarray(ends, jnp.int32))

    def step(carry, _):
        cache, token, ended = carry
        logits, cache = run(cache, token[:, None], None)
        following, ended = chosen(logits, ended)
        return (cache, following, ended), following

    first, ended = chosen(logits, jnp.zeros(len(logits), bool))
    _, rest = lax.scan(step, (cache, first, ended), None, length=steps - 1)
    return jnp.concatenate([first[:, None], rest.T], axis=1)


@functools.partial(toile.jit, static_argnames=("model", "steps", "start", "ends", "pad"))
def answer(model, variables, tokens, mask, *, steps, start=0, ends=(), pad=0):
    """Generate `steps` tokens from inputs [batch, length] with an encoder-decoder model.

    The decoder starts with the token `start`; for `ends` and `pad`, see `complete`.
    """
    batch = len(tokens)
    encoded = model.apply(variables, tokens, mask, method="encode")
    room = jnp.zeros((batch, steps + 1), jnp.int32)
    cache = empty_cache(model, variables, room, encoded, method="decode")

    def run(cache, tokens, _, encoded=None):
        logits, new = model.apply(
            {**variables, "cache": cache}, tokens, encoded, mask, decode=True, last=True,
            mutable=["cache"], method="decode",
        )  # fmt: skip
        return logits[:, -1], new["cache"]

    logits, cache = run(cache, jnp.full((batch, 1), start), None, encoded)
    return _loop(run, logits, cache, steps, ends, pad)
