"""Tokens per second of a decoder with 150 million parameters, in float32.

    python -m benchmarks.generation --batches 1 8 --tokens 16

prints, for each batch size, the time for the prompts, the time for each step of the compiled loop,
and the tokens per second of the loop. The parameters are random. `--cache rows` uses a cache with
one count of tokens for each row, which toile runs with `vmap`. `--cache shared` uses
`generation.cached_attention`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import toile
import toile.numpy as jnp
from toile import generation, lax
from toile import linen as nn

ROUNDS = 3
SIZES = {"tiny": (2, 64, 4, 256), "150M": (14, 768, 12, 32_000)}


class Attention(nn.Module):
    """Causal self-attention with either kind of cache."""

    heads: int
    rows: bool

    @nn.compact
    def __call__(self, x: Any, positions: Any) -> Any:
        shape = (self.heads, x.shape[-1] // self.heads)
        q, k, v = (nn.DenseGeneral(shape, name=name)(x) for name in ("query", "key", "value"))
        attend = self.through_counted_cache if self.rows else self.through_cache
        return nn.DenseGeneral(x.shape[-1], (-2, -1), name="out")(attend(q, k, v, positions))

    def through_cache(self, q: Any, k: Any, v: Any, positions: Any) -> Any:
        return generation.cached_attention(self, q, k, v, positions)

    def through_counted_cache(self, q: Any, k: Any, v: Any, positions: Any) -> Any:
        filled = self.has_variable("cache", "keys")
        keys = self.variable("cache", "keys", jnp.zeros, k.shape)
        values = self.variable("cache", "values", jnp.zeros, v.shape)
        used = self.variable("cache", "used", jnp.zeros, (), jnp.int32)
        if filled:
            place = (0, used.value, 0, 0)
            keys.value = k = lax.dynamic_update_slice(keys.value, k, place)
            values.value = v = lax.dynamic_update_slice(values.value, v, place)
        mask = jnp.arange(k.shape[1]) <= positions[:, :, None]
        return toile.nn.dot_product_attention(q, k, v, mask=mask[:, None])


class Decoder(nn.Module):
    """A decoder with learned positions and norms before attention and MLP."""

    layers: int
    features: int
    heads: int
    vocabulary: int
    rows: bool = False

    @nn.compact
    def __call__(self, tokens: Any, positions: Any) -> Any:
        x = nn.Embed(self.vocabulary, self.features)(tokens)
        x = x + nn.Embed(2048, self.features)(jnp.maximum(positions, 0))
        for _ in range(self.layers):
            x = x + Attention(self.heads, self.rows)(nn.LayerNorm()(x), positions)
            y = nn.gelu(nn.Dense(4 * self.features)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.features)(y)
        return nn.Dense(self.vocabulary, use_bias=False)(nn.LayerNorm()(x))


def measure(model: Decoder, variables: Any, batch: int, prompt: int, tokens: int) -> None:
    """Print the times of the prompts and of the steps for one batch size."""
    prompts = np.random.default_rng(0).integers(1, model.vocabulary, (batch, prompt)).tolist()
    sampler = generation.chain(generation.temperature(0.8), generation.top_p(0.95))

    def run() -> list[float]:
        """The times after the prompts and the first `tokens` steps, and after each `tokens` more.

        The program is the same for all rounds: the number of steps is one of its arguments."""
        times = [time.perf_counter()]
        for piece in generation.stream(
            model, variables, prompts, max_tokens=(ROUNDS + 1) * tokens, sampler=sampler,
            every=tokens,
        ):  # fmt: skip
            if piece.row == 0:
                times.append(time.perf_counter())
        return [after - before for before, after in zip(times, times[1:])]

    run()
    first, *rounds = run()
    step = statistics.median(rounds) / tokens
    print(
        f"batch {batch}: prompts of {prompt} tokens {max(0.0, first - tokens * step):.2f} s, each "
        f"step {1e3 * step:.1f} ms (slowest of {ROUNDS} rounds: {1e3 * max(rounds) / tokens:.1f} "
        f"ms), {batch / step:.1f} tokens/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=SIZES, default="150M")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=64, help="length of the prompts")
    parser.add_argument("--tokens", type=int, default=16, help="number of steps of a round")
    parser.add_argument("--cache", choices=("shared", "rows"), default="shared")
    args = parser.parse_args()
    model = Decoder(*SIZES[args.size], rows=args.cache == "rows")
    tokens = jnp.zeros((1, 4), jnp.int32)
    made = toile.jit(model.init)(toile.random.key(0), tokens, jnp.arange(4)[None])
    variables = {"params": made["params"]}
    count = sum(x.size for x in toile.tree.leaves(variables))
    print(f"{count / 1e6:.1f} million parameters, cache: {args.cache}")
    for batch in args.batches:
        measure(model, variables, batch, args.prompt, args.tokens)


if __name__ == "__main__":
    main()
