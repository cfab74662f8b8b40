"""The model of `benchmarks.generation` in transformers and in JAX."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.generation_child import BYTES, Generate

STEPS_ROOM = 128  # tokens after the prompt for which caches have room


def _threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


# ---- transformers
def transformers_model(config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """`generate` of transformers."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(_threads())
    device = "cuda" if os.environ.get("BENCHMARK_PLATFORM") == "gpu" else "cpu"
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(**config)).to(getattr(torch, dtype)).eval()
    size = sum(p.numel() for p in model.parameters()) - model.model.embed_tokens.weight.numel()
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}

    def generate(prompts: np.ndarray, count: int) -> Any:
        tokens = torch.from_numpy(prompts.astype(np.int64)).to(device)
        with torch.no_grad():
            return model.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count,
                min_new_tokens=count, **options,
            ).cpu()  # fmt: skip

    return generate, size * BYTES[dtype]


# ---- JAX
def jax_model(config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """A decode loop as JAX's users write it: a cache, `jit`, and `while_loop` over the tokens."""
    import jax
    import jax.numpy as jnp

    c, type_ = config, jnp.dtype(dtype)
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    d, layers = c["hidden_size"], c["num_hidden_layers"]
    depth, f, vocabulary = d // heads, c["intermediate_size"], c["vocab_size"]
    shapes = {"q": (d, heads, depth), "k": (d, kv_heads, depth), "v": (d, kv_heads, depth),
              "o": (heads, depth, d), "gate": (d, f), "up": (d, f), "down": (f, d)}
    keys = iter(jax.random.split(jax.random.key(0), 9 * layers + 9))

    def random(shape: tuple[int, ...]) -> Any:
        return 0.02 * jax.random.normal(next(keys), shape, type_)

    blocks = [{**{name: random(shape) for name, shape in shapes.items()},
               "norm1": jnp.ones(d, type_), "norm2": jnp.ones(d, type_)} for _ in range(layers)]
    read = {"blocks": blocks, "norm": jnp.ones(d, type_), "logits": random((d, vocabulary))}
    params = {**read, "embedding": random((vocabulary, d))}
    angles = 1 / c["rope_theta"] ** (np.arange(0, depth, 2, dtype=np.float32) / depth)

    def norm(x: Any, scale: Any) -> Any:
        y = x.astype(jnp.float32)
        y = y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + c["rms_norm_eps"])
        return y.astype(x.dtype) * scale

    def rotate(x: Any, positions: Any) -> Any:
        turn = positions[:, None, None] * angles
        cos, sin = jnp.cos(turn).astype(x.dtype), jnp.sin(turn).astype(x.dtype)
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(p: Any, x: Any, cache: Any, start: Any) -> Any:
        batch, length = x.shape[:2]
        positions = start + jnp.arange(length)
        q = rotate(jnp.einsum("bld,dhk->blhk", x, p["q"]), positions)
        k = rotate(jnp.einsum("bld,dhk->blhk", x, p["k"]), positions)
        v = jnp.einsum("bld,dhk->blhk", x, p["v"])
        keys = jax.lax.dynamic_update_slice(cache[0], k, (0, start, 0, 0))
        values = jax.lax.dynamic_update_slice(cache[1], v, (0, start, 0, 0))
        mask = jnp.arange(keys.shape[1]) <= positions[:, None]
        y = jax.nn.dot_product_attention(q, keys, values, mask=mask[None, None])
        return jnp.einsum("blhk,hkd->bld", y, p["o"]), (keys, values)

    def forward(params: Any, caches: Any, tokens: Any, start: Any) -> Any:
        x, after = params["embedding"][tokens], []
        for p, cache in zip(params["blocks"], caches, strict=True):
            y, cache = attention(p, norm(x, p["norm1"]), cache, start)
            after.append(cache)
            x = x + y
            y = norm(x, p["norm2"])
            x = x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]
        logits = norm(x[:, -1], params["norm"]) @ params["logits"]
        return logits.argmax(-1).astype(jnp.int32), after

    @jax.jit
    def run(params: Any, prompts: Any, count: Any) -> Any:
        batch, length = prompts.shape
        room = (batch, length + STEPS_ROOM, kv_heads, depth)
        caches = [(jnp.zeros(room, type_), jnp.zeros(room, type_)) for _ in range(layers)]
        token, caches = forward(params, caches, prompts, 0)
        out = jnp.zeros((batch, STEPS_ROOM), jnp.int32).at[:, 0].set(token)

        def step(state: Any) -> Any:
            i, token, caches, out = state
            token, caches = forward(params, caches, token[:, None], length + i - 1)
            return i + 1, token, caches, out.at[:, i].set(token)

        more = lambda state: state[0] < count
        return jax.lax.while_loop(more, step, (jnp.int32(1), token, caches, out))[3]

    size = sum(x.nbytes for x in jax.tree.leaves(read))
    return lambda prompts, count: run(params, prompts, count).block_until_ready(), size


MODELS = {"transformers": transformers_model, "jax": jax_model}
