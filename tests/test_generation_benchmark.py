"""The benchmark of generation measures toile at a tiny size and formats its results."""

import numpy as np
import pytest

from benchmarks import generation as benchmark
from benchmarks import generation_child as child

# Of the tiny model, without the embedding, of which a step reads one row for each token.
PARAMETERS = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64 + 64 * 256


@pytest.mark.cpu
@pytest.mark.parametrize(("dtype", "low", "high"), [
    ("float32", 4 * PARAMETERS, 4 * PARAMETERS), ("bfloat16", 2 * PARAMETERS, 2 * PARAMETERS),
    ("int8", PARAMETERS, 1.1 * PARAMETERS), ("int4", 0.5 * PARAMETERS, 0.7 * PARAMETERS),
])  # fmt: skip
def test_a_window_of_toile(dtype, low, high):
    config = {**child.CONFIG, **benchmark.TINY}
    generate, found = child.model_of("toile", config, dtype)
    assert low <= found <= high
    command = {"batch": 2, "prompt": 9, "tokens": 3}
    window = child.answer(command, generate, config["vocab_size"])
    assert set(window) == {"first", "first_cpu", "step", "step_cpu"}
    assert window["first"] > 0 and all(np.isfinite(list(window.values())))
    prompts = child.prompts_of(config["vocab_size"], 2, 9)
    assert [len(one.tokens) for one in generate(prompts, 4)] == [4, 4]


def test_a_row_names_the_share_of_the_bandwidth():
    found = {
        "memory": {"bytes": 1000, "batch 1": {"first": [1.0, 2.0, 4.0], "first_cpu": [1.0]}},
        "toile": {"bytes": 500, "batch 1": {
            "cold": 9.0, "first": [3.0], "first_cpu": [3.0], "step": [2.0, 1.0, 4.0],
            "step_cpu": [1.0]}},
        "jax": {"bytes": 500, "batch 1": {"error": "no memory"}},
    }  # fmt: skip
    row = benchmark.line("float32", 1, "toile", found)
    assert "0.5 tokens/s" in row and "step 2000.0 ms (least 1000.0;" in row
    assert "50% of the bandwidth, 50% of the bandwidth in CPU time" in row
    assert "0.0 GB/s" in benchmark.line("float32", 1, "memory", found)
    assert benchmark.line("float32", 1, "jax", found).endswith("no memory")
    assert benchmark.medians({"float32": found}) == {
        "float32, batch 1, first token": {"median_us": {"toile": 3e6}},
        "float32, batch 1, further token": {"median_us": {"toile": 1e6}},
    }
