"""Greedy decoding: a loop that appends the most likely token, with a cache."""

import functools

import toile
import toile.numpy as jnp
from toile import lax


def until(tokens: list[int], ends: tuple[int, ...]) -> list[int]:
    """Return the tokens before the first one that ends a text."""
    stop = next((i for i, token in enumerate(tokens) if token in ends), len(tokens))
    return tokens[:stop]


def empty_cache(model, variables, tokens, encoded):
    """Return a cache of zeros with one slot for each column of `tokens`."""

    def make(variables):
        given = tokens, encoded
        return model.apply(variables, *given, decode=True, mutable=["cache"], method="decode")[1]

    shapes = toile.eval_shape(make, variables)["cache"]
    return toile.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)


@functools.partial(
    toile.jit, static_argnames=("model", "steps", "ends", "pad", "never", "not_first")
)
def transcribe(
    model, variables, spectrograms, prompt, *, steps, ends=(), pad=0, never=(), not_first=()
):
    """Return the `steps` tokens [batch, steps] that follow a prompt [batch, length].

    The tokens `ends` end a text; `pad` fills the rest of its row. The tokens `never` are not
    chosen, and the tokens `not_first` are not chosen right after the prompt.
    """
    encoded = model.apply(variables, spectrograms, method="encode")
    room = jnp.zeros((len(prompt), prompt.shape[1] + steps), jnp.int32)

    def run(cache, tokens, encoded=None):
        logits, new = model.apply(
            {**variables, "cache": cache}, tokens, encoded, decode=True, last=True,
            mutable=["cache"], method="decode",
        )  # fmt: skip
        return logits[:, -1], new["cache"]

    def chosen(logits, ended, left_out):
        if left_out:
            logits = logits.at[:, jnp.asarray(left_out)].set(-jnp.inf)
        token = jnp.where(ended, pad, logits.argmax(axis=-1)).astype(jnp.int32)
        return token, ended | jnp.isin(token, jnp.asarray(ends, jnp.int32))

    def step(carry, _):
        cache, token, ended = carry
        logits, cache = run(cache, token[:, None])
        following, ended = chosen(logits, ended, never)
        return (cache, following, ended), following

    logits, cache = run(empty_cache(model, variables, room, encoded), prompt, encoded)
    first, ended = chosen(logits, jnp.zeros(len(logits), bool), (*never, *not_first))
    _, rest = lax.scan(step, (cache, first, ended), None, length=steps - 1)
    return jnp.concatenate([first[:, None], rest.T], axis=1)


@functools.partial(toile.jit, static_argnames=("model", "start", "languages"))
def most_likely_language(model, variables, spectrograms, *, start, languages):
    """Return for each recording the most likely of the tokens `languages`."""
    tokens = jnp.full((len(spectrograms), 1), start, jnp.int32)
    logits = model.apply(variables, spectrograms, tokens)[:, -1]
    choices = jnp.asarray(languages, jnp.int32)
    return choices[logits[:, choices].argmax(axis=-1)]
