"""The benchmark of generation measures toile at a tiny size and formats its results."""

import json

import numpy as np
import pytest

from benchmarks import generation as benchmark
from benchmarks import generation_child as child
from benchmarks import generation_peers as peers

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


def test_parts_of_a_table_are_measured_one_after_the_other(tmp_path):
    options = {"size": "tiny", "tokens": 4, "dtypes": {}}
    old = {"float32": {"toile": {"bytes": 5, "batch 1": {"first": [1.0]}}}}
    file = tmp_path / "results.json"
    assert benchmark.earlier(str(file), options) == {}
    file.write_text(json.dumps({**options, "dtypes": old, "results": {}}))
    found = benchmark.earlier(str(file), options)
    assert found == old
    benchmark.merge(found["float32"], {
        "toile": {"bytes": 5, "batch 32": {"first": [2.0]}}, "jax": {"error": "no memory"}})
    assert found["float32"] == {
        "toile": {"bytes": 5, "batch 1": {"first": [1.0]}, "batch 32": {"first": [2.0]}},
        "jax": {"error": "no memory"}}
    with pytest.raises(SystemExit, match="measured with other tokens"):
        benchmark.earlier(str(file), {**options, "tokens": 5})


@pytest.fixture
def two_threads(monkeypatch):
    """The environment of a child on the CPU."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("BENCHMARK_PLATFORM", raising=False)


@pytest.mark.usefixtures("two_threads")
def test_the_bandwidth_is_that_of_all_reads():
    read, size = child.bandwidth()
    maxima = read(child.prompts_of(9, 1, 1), 1)
    assert maxima == [1.0] * 2 * child.READS
    assert size == child.READS * 4 * (1 << 27)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("dtype", child.BYTES)
def test_compiled_transformers_generate_what_transformers_generates(dtype):
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = {**child.CONFIG, **benchmark.TINY}
    found = []
    for framework in ("transformers", "transformers compiled"):
        torch.manual_seed(0)
        generate, size = child.model_of(framework, config, dtype)
        assert size == child.BYTES[dtype] * PARAMETERS
        prompts = child.prompts_of(config["vocab_size"], 2, 9)
        found.append([generate(prompts, count).numpy() for count in (1, 6, 6)])
    for plain, compiled in zip(*found, strict=True):
        assert plain.shape == compiled.shape
        if dtype == "float32":  # rounding to bfloat16 may change a choice
            np.testing.assert_array_equal(plain, compiled)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("dtype", "low", "high"), [
    ("float32", 4, 4.01), ("bfloat16", 2, 2.1), ("int8", 1.06, 1.2), ("int4", 0.56, 0.7)])
def test_llama_cpp_generates_the_same_tokens_in_batches(dtype, low, high):
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    config = {**child.CONFIG, **benchmark.TINY}
    generate, size = child.model_of("llama.cpp", config, dtype)
    assert low * PARAMETERS <= size <= high * PARAMETERS
    prompts = child.prompts_of(config["vocab_size"], 3, 9)
    together = generate(prompts, 5)
    assert together.shape == (3, 5)
    np.testing.assert_array_equal(together, generate(prompts, 5))
    alone = np.concatenate([generate(row[None], 5) for row in prompts])
    assert (together[:, 0] == alone[:, 0]).all()


def test_a_gguf_file_has_the_parameters_of_the_model():
    config = {**child.CONFIG, **benchmark.TINY}
    arrays = dict(peers._gguf_tensors(config))
    embedding = arrays.pop("token_embd.weight")
    assert embedding.shape == (256, 64)
    assert sum(x.size for x in arrays.values()) == PARAMETERS
