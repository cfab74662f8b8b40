"""The model of `benchmarks.generation` in transformers, in JAX and in llama.cpp."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generation_child import BYTES, Generate

STEPS_ROOM = 128  # tokens after the prompt for which caches have room


def _threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


def _on_gpu() -> bool:
    return os.environ.get("BENCHMARK_PLATFORM") == "gpu"


# ---- transformers
def transformers_model(config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """`generate` of transformers."""
    model, size = _transformers(config, dtype)
    return lambda prompts, count: _transformers_tokens(model, prompts, count), size


def compiled_transformers_model(config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """`generate` of transformers with a static cache and a compiled `forward`.

    There is one program for the prompts and one for a further token, and one cache for each shape
    of prompts. On a GPU, the programs run as CUDA graphs."""
    import torch
    from transformers import StaticCache

    model, size = _transformers(config, dtype)
    mode = "reduce-overhead" if _on_gpu() else "default"
    model.forward = torch.compile(model.forward, mode=mode, fullgraph=True, dynamic=False)
    depth = config["hidden_size"] // config["num_attention_heads"]
    caches: dict[tuple[int, int], Any] = {}

    def generate(prompts: np.ndarray, count: int) -> Any:
        batch, length = prompts.shape
        if (batch, length) not in caches:
            cache = StaticCache(config=model.config, max_cache_len=length + STEPS_ROOM)
            cache.early_initialization(batch, config["num_key_value_heads"], depth, model.dtype,
                                       model.device)
            caches[batch, length] = cache
        cache = caches[batch, length]
        cache.reset()
        return _transformers_tokens(model, prompts, count, past_key_values=cache,
                                    disable_compile=True)  # it is compiled already

    return generate, size


def _transformers(config: dict[str, Any], dtype: str) -> tuple[Any, int]:
    """The model, and the bytes of parameters that a step reads."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(_threads())
    with torch.device("cuda" if _on_gpu() else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(**config)).to(getattr(torch, dtype)).eval()
    size = sum(p.numel() for p in model.parameters()) - model.model.embed_tokens.weight.numel()
    return model, size * BYTES[dtype]


def _transformers_tokens(model: Any, prompts: np.ndarray, count: int, **options: Any) -> Any:
    import torch

    tokens = torch.from_numpy(prompts.astype(np.int64)).to(model.device)
    with torch.no_grad():
        return model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count,
            min_new_tokens=count, do_sample=False, pad_token_id=0, eos_token_id=None, **options,
        ).cpu()  # fmt: skip


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


# ---- llama.cpp
GGUF_TYPES = {"float32": "F32", "bfloat16": "BF16", "int8": "Q8_0", "int4": "Q4_0"}


def llama_cpp_model(config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """`llama_decode` of llama.cpp through its Python package, with a GGUF file of random weights.

    All prompts of a batch are read together, and so are their further tokens."""
    import llama_cpp

    on_gpu = _on_gpu()
    if on_gpu and not llama_cpp.llama_supports_gpu_offload():
        raise NotImplementedError("llama.cpp was built without support for GPUs")
    llama_cpp.llama_backend_init()
    options = llama_cpp.llama_model_default_params()
    options.n_gpu_layers = -1 if on_gpu else 0
    options.use_mmap = False
    with tempfile.TemporaryDirectory(prefix="toile-bench-") as folder:
        path = Path(folder) / "model.gguf"
        size = write_gguf(path, config, dtype)
        model = llama_cpp.llama_model_load_from_file(os.fsencode(path), options)
    if not model:
        raise ValueError("llama.cpp cannot load the model")
    contexts: dict[tuple[int, int], Any] = {}

    def generate(prompts: np.ndarray, count: int) -> np.ndarray:
        if prompts.shape not in contexts:
            contexts[prompts.shape] = _llama_cpp_context(llama_cpp, model, *prompts.shape)
        context = contexts[prompts.shape]
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
        tokens, start, found = prompts, 0, []
        for _ in range(count):
            following = _llama_cpp_step(llama_cpp, context, tokens, start, config["vocab_size"])
            start, tokens = start + tokens.shape[1], following[:, None]
            found.append(following)
        return np.stack(found, 1)

    return generate, size


def _llama_cpp_context(llama_cpp: Any, model: Any, batch: int, length: int) -> Any:
    """A cache for some prompts."""
    options = llama_cpp.llama_context_default_params()
    options.n_ctx = batch * (length + STEPS_ROOM)
    options.n_batch = batch * length
    options.n_seq_max = batch
    options.n_threads = options.n_threads_batch = _threads()
    options.no_perf = True
    context = llama_cpp.llama_init_from_model(model, options)
    if not context:
        raise MemoryError("llama.cpp cannot create a cache")
    return context


def _llama_cpp_step(llama_cpp: Any, context: Any, tokens: np.ndarray, start: int, vocabulary: int
                    ) -> np.ndarray:
    """The most likely token after each row of tokens, the first of which is at position `start`."""
    batch, length = tokens.shape
    step = llama_cpp.llama_batch_init(tokens.size, 0, 1)
    step.n_tokens = tokens.size
    for i, token in enumerate(tokens.flat):
        step.token[i], step.pos[i] = int(token), start + i % length
        step.n_seq_id[i], step.seq_id[i][0] = 1, i // length
        step.logits[i] = i % length == length - 1
    error = llama_cpp.llama_decode(context, step)
    llama_cpp.llama_batch_free(step)
    if error:
        raise RuntimeError(f"llama_decode failed with {error}")
    rows = (llama_cpp.llama_get_logits_ith(context, (row + 1) * length - 1) for row in range(batch))
    return np.array([np.ctypeslib.as_array(row, (vocabulary,)).argmax() for row in rows], np.int32)


def write_gguf(path: Path, config: dict[str, Any], dtype: str) -> int:
    """Write a GGUF file of a Llama with random weights; return the bytes that a step reads."""
    import gguf

    writer, c = gguf.GGUFWriter(path, "llama"), config
    writer.add_vocab_size(c["vocab_size"])
    writer.add_tokenizer_model("none")
    writer.add_context_length(c["max_position_embeddings"])
    writer.add_embedding_length(c["hidden_size"])
    writer.add_block_count(c["num_hidden_layers"])
    writer.add_feed_forward_length(c["intermediate_size"])
    writer.add_head_count(c["num_attention_heads"])
    writer.add_head_count_kv(c["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(c["rms_norm_eps"])
    writer.add_rope_dimension_count(c["hidden_size"] // c["num_attention_heads"])
    writer.add_rope_freq_base(c["rope_theta"])
    kind, size = gguf.GGMLQuantizationType[GGUF_TYPES[dtype]], 0
    for name, array in _gguf_tensors(config):
        stored, own = array, gguf.GGMLQuantizationType.F32
        if array.ndim == 2:
            stored, own = gguf.quants.quantize(array, kind), kind
        writer.add_tensor(name, stored, raw_dtype=own)
        size += 0 if name.startswith("token_embd") else stored.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return size


def _gguf_tensors(config: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """The names that llama.cpp gives to the parameters, and random values."""
    d, f = config["hidden_size"], config["intermediate_size"]
    kv = d // config["num_attention_heads"] * config["num_key_value_heads"]
    vocabulary, generator = config["vocab_size"], np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (vocabulary, d), "output_norm": (d,),
                                          "output": (vocabulary, d)}
    for i in range(config["num_hidden_layers"]):
        block = {"attn_norm": (d,), "attn_q": (d, d), "attn_k": (kv, d), "attn_v": (kv, d),
                 "attn_output": (d, d), "ffn_norm": (d,), "ffn_gate": (f, d), "ffn_up": (f, d),
                 "ffn_down": (d, f)}  # fmt: skip
        shapes |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    for name, shape in shapes.items():
        values = generator.standard_normal(shape, np.float32)
        yield f"{name}.weight", np.ones(shape, np.float32) if len(shape) == 1 else 0.02 * values


MODELS = {
    "transformers": transformers_model, "transformers compiled": compiled_transformers_model,
    "jax": jax_model, "llama.cpp": llama_cpp_model,
}  # fmt: skip
