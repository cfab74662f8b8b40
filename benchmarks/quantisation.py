"""What quantization costs in accuracy, and how fast products of few rows are.

Run `python -m benchmarks.quantisation`. It trains a small language model of bytes on the text that
comes with the examples, quantizes it in several ways, and prints the perplexity of a held-out part
of the text. Then it measures products of a few rows with a large matrix. `--steps` and `--size`
make it shorter; `--only quality` or `--only speed` runs one part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import toile
import toile.numpy as jnp
from toile import linen as nn
from toile import optim
from toile.quantization import calibrate, quantize, quantize_array, quantize_inputs, size_of

TEXT = Path(__file__).parents[1] / "examples" / "data" / "python_topics" / "topics.txt"
LENGTH, BATCH, SELECT = 64, 32, "**/kernel"
ROWS = (1, 2, 4, 8)
INT4 = {"bits": 4, "group": 32}
WAYS: dict[str, tuple[dict[str, Any], bool]] = {  # options of quantize, and whether inputs are, too
    "8 bits": ({"bits": 8}, False),
    "8 bits, 8-bit inputs (scale per row)": ({"bits": 8}, True),
    "8 bits, 8-bit inputs (static scale)": ({"bits": 8, "static_inputs": True}, True),
    "float8_e4m3fn": ({"dtype": jnp.float8_e4m3fn}, False),
    "float8_e4m3fn, float8 inputs": ({"dtype": jnp.float8_e4m3fn}, True),
    "4 bits, one group, round": ({"bits": 4}, False),
    "4 bits, one group, awq": ({"bits": 4, "method": "awq"}, False),
    "4 bits, one group, gptq": ({"bits": 4, "method": "gptq"}, False),
    "4 bits, groups of 32, round": (INT4, False),
    "4 bits, groups of 32, awq": ({**INT4, "method": "awq"}, False),
    "4 bits, groups of 32, gptq": ({**INT4, "method": "gptq"}, False),
    "4 bits, groups of 32, gptq, act_order": ({**INT4, "method": "gptq", "act_order": True}, False),
    "4 bits, groups of 32, zero points, gptq": (
        {**INT4, "method": "gptq", "symmetric": False}, False),
}


class Transformer(nn.Module):
    """A language model of bytes."""

    width: int = 128
    layers: int = 2

    @nn.compact
    def __call__(self, ids: Any) -> Any:
        mask = nn.make_causal_mask(ids)
        x = nn.Embed(256, self.width)(ids)
        x = x + self.param("positions", nn.initializers.normal(0.02), (LENGTH, self.width))
        for _ in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
            h = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(h)
        return nn.Dense(256)(nn.LayerNorm()(x))


def loss_of(apply: Callable[..., Any], params: Any, rows: Any) -> Any:
    """The mean cross-entropy of the bytes of rows, except the first byte of each."""
    logits = apply(params, rows[:, :-1])
    return optim.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()


def batches(data: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Rows that start at random places."""
    while True:
        starts = rng.integers(0, len(data) - LENGTH - 1, BATCH)
        yield data[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int32)


def trained(model: nn.Module, data: np.ndarray, steps: int) -> Any:
    """The parameters after training."""
    feed = batches(data, np.random.default_rng(0))
    params = model.init(toile.random.key(0), next(feed)[:, :-1])
    tx = optim.adam(optim.cosine_decay_schedule(3e-3, steps))

    @toile.jit
    def step(params: Any, state: Any, rows: Any) -> Any:
        grads = toile.grad(lambda p: loss_of(model.apply, p, rows))(params)
        updates, state = tx.update(grads, state, params)
        return optim.apply_updates(params, updates), state

    state = tx.init(params)
    for _ in range(steps):
        params, state = step(params, state, next(feed))
    return params


def perplexity(apply: Callable[..., Any], params: Any, data: np.ndarray) -> float:
    """The perplexity per byte of a text."""
    count = len(data) // (LENGTH + 1)
    rows = data[: count * (LENGTH + 1)].reshape(count, -1).astype(np.int32)
    loss = toile.jit(lambda params, rows: loss_of(apply, params, rows))
    parts = [rows[i : i + BATCH] for i in range(0, count - BATCH + 1, BATCH)]
    return float(np.exp(np.mean([loss(params, part) for part in parts])))


def quality(
    steps: int, width: int = 128, ways: dict[str, Any] | None = None
) -> list[tuple[str, float, int]]:
    """The perplexity, and the bytes of parameters, for each way."""
    data = np.frombuffer(TEXT.read_bytes(), np.uint8)
    held_out = data[-len(data) // 20 :]
    data = data[: -len(data) // 20]
    model = Transformer(width)
    params = trained(model, data, steps)
    feed = batches(data, np.random.default_rng(1))
    statistics = calibrate(model.apply, params, [next(feed)[:, :-1] for _ in range(8)], SELECT)
    found = [("float32", perplexity(model.apply, params, held_out), size_of(params))]
    for name, (how, inputs) in (WAYS if ways is None else ways).items():
        quantized = quantize(params, SELECT, statistics=statistics, **how)
        apply = quantize_inputs(model.apply) if inputs else model.apply
        found.append((name, perplexity(apply, quantized, held_out), size_of(quantized)))
    return found


def best_time(fun: Callable[[], Any], rounds: int = 15) -> float:
    """The least seconds of a call."""
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        fun()
        times.append(time.perf_counter() - started)
    return min(times)


def speed(size: int) -> tuple[float, list[tuple[str, list[tuple[float, float]]]]]:
    """Bytes per second of a copy, and seconds and bytes per second of products by form and rows."""
    source = np.ones(32 << 20, np.uint8)
    target = np.empty_like(source)
    copied = source.size / best_time(lambda: np.copyto(target, source))
    rng = np.random.default_rng(0)
    w = rng.normal(size=(size, size)).astype(np.float32)
    forms = {"float32": jnp.asarray(w), "8 bits": quantize_array(w, bits=8),
             "8 bits, groups of 64": quantize_array(w, bits=8, group=64),
             "4 bits, groups of 64": quantize_array(w, bits=4, group=64)}
    table = []
    for name, form in forms.items():
        row = []
        for m in ROWS:
            x = jnp.asarray(rng.normal(size=(m, size)).astype(np.float32))
            product = toile.jit(lambda x, w: x @ w)
            product(x, form)

            def run(product: Any = product, x: Any = x, form: Any = form) -> None:
                product(x, form).block_until_ready()

            seconds = best_time(run)
            stored = form.nbytes if name == "float32" else form.values.nbytes
            row.append((seconds, stored / seconds))
        table.append((name, row))
    return copied, table


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=["quality", "speed"])
    parser.add_argument("--steps", type=int, default=600, help="training steps")
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the matrix")
    options = parser.parse_args()
    if options.only != "speed":
        print("| kernels | perplexity per byte | bytes of parameters |\n|---|---|---|")
        for name, value, size in quality(options.steps):
            print(f"| {name} | {value:.4f} | {size:,} |")
    if options.only != "quality":
        copied, table = speed(options.size)
        print(f"\na copy of 32 MiB: {copied / 1e9:.1f} GB/s\n")
        print("| matrix | " + " | ".join(f"{m} rows" for m in ROWS) + " |")
        print("|---|" + "---|" * len(ROWS))
        for name, row in table:
            cells = (f"{seconds * 1e3:.2f} ms, {rate / 1e9:.1f} GB/s" for seconds, rate in row)
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
