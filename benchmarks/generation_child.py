"""A process that generates tokens with one framework; `benchmarks.generation` starts it.

It reads commands as lines of JSON and answers each with a line. The command `{"batch": 1,
"prompt": 128, "tokens": 32}` measures the time for the prompts and the first token, and the time
for each further token.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

CONFIG = {
    "model_type": "llama", "vocab_size": 32_000, "hidden_size": 768, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 2048, "num_hidden_layers": 16,
    "rms_norm_eps": 1e-5, "rope_theta": 10_000.0, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip
BYTES = {"float32": 4, "bfloat16": 2}
READS = 4  # how often memory is read in a window
Generate = Callable[[np.ndarray, int], Any]


def prompts_of(vocabulary: int, batch: int, length: int) -> np.ndarray:
    """Random prompts of shape (batch, length)."""
    return np.random.default_rng(0).integers(1, vocabulary, (batch, length)).astype(np.int32)


def toile_model(config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """Return `generate` of toile, and the bytes of parameters that a step reads."""
    import toile
    import toile.numpy as jnp
    from examples.language_model import llama
    from toile import generation
    from toile.quantization import quantize

    model = llama.model(config)
    made = toile.jit(model.init)(toile.random.key(0), jnp.zeros((1, 4), jnp.int32))
    params = made["params"]
    if dtype != "float32":
        params = toile.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    if dtype == "int8":
        params = quantize(params, bits=8)
    if dtype == "int4":
        params = quantize(params, bits=4, group=32)
    variables = {"params": params}
    table = toile.tree.leaves(params["embedding"])
    size = sum(x.nbytes for x in toile.tree.leaves(params)) - sum(x.nbytes for x in table)

    def generate(prompts: np.ndarray, count: int) -> Any:
        return generation.generate(model, variables, prompts.tolist(), max_tokens=count)

    return generate, size


def bandwidth() -> tuple[Generate, int]:
    """Return a function that reads a large array with all threads, and the bytes it reads."""
    if os.environ.get("BENCHMARK_PLATFORM") == "gpu":
        return _copies_on_gpu()
    threads = int(os.environ["OMP_NUM_THREADS"])
    array = np.ones(1 << 27, np.float32)
    parts = np.split(array, threads)
    pool = ThreadPoolExecutor(threads)
    return lambda prompts, count: list(pool.map(np.max, parts * READS)), READS * array.nbytes


def _copies_on_gpu() -> tuple[Generate, int]:
    """Return a function that copies a large array on the GPU, and the bytes read and written."""
    import cupy

    source = cupy.ones(1 << 30, cupy.float32)
    target = cupy.empty_like(source)

    def copy(prompts: np.ndarray, count: int) -> None:
        cupy.copyto(target, source)
        cupy.cuda.Device().synchronize()

    return copy, 2 * source.nbytes


def model_of(framework: str, config: dict[str, Any], dtype: str) -> tuple[Generate, int]:
    """Return a function that generates tokens, and the bytes that a step reads."""
    if framework == "memory":
        return bandwidth()
    if framework == "toile":
        return toile_model(config, dtype)
    from benchmarks import generation_peers as peers

    return peers.MODELS[framework](config, dtype)


def times(generate: Generate, prompts: np.ndarray, count: int) -> np.ndarray:
    """The time for `count` tokens, and the CPU time of all threads."""
    before = np.array([time.perf_counter(), time.process_time()])
    generate(prompts, count)
    return np.array([time.perf_counter(), time.process_time()]) - before


def answer(command: dict[str, Any], generate: Generate, vocabulary: int) -> dict[str, Any]:
    """Measure one window."""
    prompts = prompts_of(vocabulary, command["batch"], command["prompt"])
    tokens, first = command["tokens"], times(generate, prompts, 1)
    found = dict(zip(("first", "first_cpu"), first.tolist(), strict=True))
    if tokens:
        step = (times(generate, prompts, 1 + tokens) - first) / tokens
        found |= dict(zip(("step", "step_cpu"), step.tolist(), strict=True))
    return found


def main() -> None:
    framework, dtype, config = sys.argv[1], sys.argv[2], {**CONFIG, **json.loads(sys.argv[3])}
    try:
        generate, size = model_of(framework, config, dtype)
    except Exception as error:  # the other frameworks are still measured
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
        return
    print(json.dumps({"bytes": size}), flush=True)
    for line in sys.stdin:
        try:
            found = answer(json.loads(line), generate, config["vocab_size"])
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
