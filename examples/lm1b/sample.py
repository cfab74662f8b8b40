"""Continue texts token by token, with a cache of keys and values, a temperature and top-k."""

import functools

import numpy as np

import toile
import toile.numpy as jnp
from toile import lax, random
from toile.training import text


def choose(key, logits, temperature: float, top_k: int):
    """Draw a token for each row of logits, from the `top_k` most likely ones (0 for all).

    A low temperature favors likely tokens; a temperature of 0 takes the most likely one.
    """
    logits = logits.at[..., text.PAD].set(-jnp.inf)
    if temperature == 0:
        return logits.argmax(axis=-1)
    if not top_k:
        return random.categorical(key, logits / temperature)
    best, tokens = lax.top_k(logits, min(top_k, logits.shape[-1]))
    drawn = random.categorical(key, best / temperature)
    return jnp.take_along_axis(tokens, drawn[..., None], axis=-1)[..., 0]


@functools.partial(toile.jit, static_argnames=("model", "length", "temperature", "top_k"))
def continued(model, params, prompts, key, *, length, temperature=0.6, top_k=20):
    """Continue prompts [batch, longest], padded with 0, to `length` tokens, with 0 after END."""
    batch, given = prompts.shape
    prompts = jnp.pad(prompts, ((0, 0), (0, length - given)))
    first = jnp.zeros((batch, 1), jnp.int32)
    # Only shapes are needed: the cache starts as zeros.
    shapes = toile.eval_shape(
        lambda: model.init(random.key(0), jnp.zeros((batch, length), jnp.int32), first, decode=True)
    )
    cache = toile.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes["cache"])

    def step(carry, i):
        cache, token, ended = carry
        logits, changed = model.apply(
            {"params": params, "cache": cache}, token, jnp.full((batch, 1), i), decode=True,
            mutable=["cache"],
        )  # fmt: skip
        drawn = choose(random.fold_in(key, i), logits[:, 0], temperature, top_k)
        drawn = jnp.where(prompts[:, i] > 0, prompts[:, i], drawn).astype(jnp.int32)
        token = jnp.where(ended, text.PAD, drawn)
        return (changed["cache"], token[:, None], ended | (token == text.END)), token

    start = (cache, first, jnp.zeros(batch, bool))
    _, tokens = lax.scan(step, start, jnp.arange(length))
    return tokens.T


def texts(model, params, tokenizer, prompts: list[str], key, **options) -> list[str]:
    """Continue texts to `length` tokens; `options` are those of `continued`."""
    encoded = [tokenizer.encode(prompt) for prompt in prompts]
    table = np.zeros((len(prompts), max(1, *map(len, encoded))), np.int32)
    for row, tokens in zip(table, encoded):
        row[: len(tokens)] = tokens
    out = np.asarray(continued(model, params, table, key, **options))
    return [tokenizer.decode(row) for row in out]
