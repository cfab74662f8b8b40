"""Small decoders with random parameters and all kinds of caches, and a loop without a cache."""

import functools

import numpy as np

import toile
import toile.numpy as jnp
from toile import generation, lax, random
from toile import linen as nn

VOCABULARY, FEATURES, LONGEST = 24, 16, 256


class StoredPositions(nn.Module):
    """Attention with a cache that stores positions."""

    window: int | None = None

    @nn.compact
    def __call__(self, x, positions, decode):
        q, k, v = (nn.DenseGeneral((2, 8), name=name)(x) for name in "qkv")
        if decode:
            y = generation.cached_attention(self, q, k, v, positions, window=self.window)
        else:
            apart = positions[:, :, None] - positions[:, None, :]
            mask = (apart >= 0) & (apart < (self.window or LONGEST))
            y = toile.nn.dot_product_attention(q, k, v, mask=mask[:, None])
        return nn.DenseGeneral(FEATURES, (-2, -1))(y)


class Counted(nn.Module):
    """Attention with a cache that counts its tokens, of several tokens at a time."""

    @nn.compact
    def __call__(self, x, positions, decode):
        q, k, v = (nn.DenseGeneral((2, 8), name=name)(x) for name in "qkv")
        start = 0
        if decode:
            filled = self.has_variable("cache", "keys")
            keys = self.variable("cache", "keys", jnp.zeros, k.shape)
            values = self.variable("cache", "values", jnp.zeros, v.shape)
            used = self.variable("cache", "used", jnp.zeros, (), jnp.int32)
            if filled:
                start = used.value
                keys.value = k = lax.dynamic_update_slice(keys.value, k, (0, start, 0, 0))
                values.value = v = lax.dynamic_update_slice(values.value, v, (0, start, 0, 0))
                used.value = start + x.shape[1]
        queries = start + jnp.arange(x.shape[1])[:, None]
        y = toile.nn.dot_product_attention(q, k, v, mask=jnp.arange(k.shape[1]) <= queries)
        return nn.DenseGeneral(FEATURES, (-2, -1))(y)


class Single(nn.Module):
    """linen's attention, which reads one token at a time."""

    @nn.compact
    def __call__(self, x, positions, decode):
        mask = None if decode else nn.make_causal_mask(positions)
        return nn.MultiHeadDotProductAttention(2, decode=decode)(x, mask=mask)


class Layer(nn.Module):
    attention: type
    options: tuple = ()

    @nn.compact
    def __call__(self, x, positions, decode):
        return x + self.attention(**dict(self.options))(nn.LayerNorm()(x), positions, decode)


class Model(nn.Module):
    """A decoder with two layers, which may be a scan."""

    attention: type
    scan: bool = False
    options: tuple = ()
    layers: int = 2
    vocabulary: int = VOCABULARY

    @nn.compact
    def __call__(self, tokens, positions=None, decode=False):
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        x = nn.Embed(self.vocabulary, FEATURES)(tokens)
        x = x + nn.Embed(LONGEST, FEATURES)(jnp.maximum(positions, 0))
        if self.scan:
            stack = nn.scan(
                lambda layer, x, *rest: (layer(x, *rest), None),
                variable_axes={"params": 0, "cache": 0}, split_rngs={"params": True},
                in_axes=nn.broadcast, length=self.layers,
            )  # fmt: skip
            x, _ = stack(Layer(self.attention, self.options), x, positions, decode)
        else:
            for _ in range(self.layers):
                x = Layer(self.attention, self.options)(x, positions, decode)
        return nn.Dense(self.vocabulary)(nn.LayerNorm()(x))


class Table:
    """A decoder whose next token depends only on the last token; its cache is empty storage."""

    rings = False

    def __init__(self, logits):
        self.logits = np.asarray(logits, np.float32)

    def empty(self, batch, length):
        return jnp.zeros((batch, length), jnp.int32)

    def apply(self, variables, cache, tokens, positions):
        return jnp.asarray(self.logits)[tokens], cache


MODELS = {
    "stored positions": Model(StoredPositions),
    "stored positions, scan": Model(StoredPositions, scan=True),
    "counted": Model(Counted),
    "counted, scan": Model(Counted, scan=True),
    "single tokens": Model(Single),
    "single tokens, scan": Model(Single, scan=True),
}


@functools.cache
def variables_of(model, seed=0):
    made = toile.jit(model.init)(random.key(seed), jnp.zeros((1, 4), jnp.int32))
    return {"params": toile.tree.map(lambda x: 2 * x, made["params"])}


@functools.cache
def _full(model):
    def logits(variables, tokens, length):
        return model.apply(variables, tokens[None])[0, length - 1].astype(jnp.float32)

    return toile.jit(logits)


def next_logits(model, variables, tokens):
    """The logits after some tokens, from a full forward pass without a cache."""
    padded = np.zeros(-(-len(tokens) // 64) * 64, np.int32)  # few lengths, as each is compiled
    padded[: len(tokens)] = tokens
    return _full(model)(variables, padded, len(tokens))


def plain(model, variables, prompt, count, sampler=None, key=None, stop=()):
    """Continue a prompt in a Python loop over full forward passes."""
    tokens = list(prompt)
    for _ in range(count):
        logits = next_logits(model, variables, tokens)[None]
        if sampler is not None:
            logits = sampler(logits, jnp.asarray([tokens]))
        if key is not None:
            drawn = random.fold_in(key, len(tokens))
            logits = logits + random.gumbel(drawn, logits.shape[1:], jnp.float32)
        new = int(logits[0].argmax())
        if new in stop:
            break
        tokens.append(new)
    return tokens[len(prompt) :]
