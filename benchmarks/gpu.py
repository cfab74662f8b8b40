"""Compiled speed on an NVIDIA GPU: toile, jax with flax, and torch take turns on one device.

`python -m benchmarks.gpu` measures training steps, the bandwidth of memory-bound operations
(compared with a copy in the same run), operations outside jit (compared with CuPy's), the time
until the first step, and peak memory. The options are those of `benchmarks.cpu`. torch runs eagerly
with TF32. Because torch.compile takes minutes to compile, its times are constants in this file,
measured once on the machine named beside them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

from benchmarks.cpu import arguments, measure_rows
from benchmarks.cpu_rows import Goal, Row

TRANSFORMER = "transformer:d=1024,layers=12,heads=16,dtype=bfloat16"
# The workload, the library to compare with ("best" is the faster one), the maximum ratio of
# toile's time to that library's, and the time with torch.compile in ms (H200).
TRAINING = (
    (f"{TRANSFORMER},batch=32,seq=512", "best", 0.90, 47.0),
    (f"{TRANSFORMER},batch=8,seq=2048", "best", 0.90, 52.2),
    ("resnet50:batch=256,dtype=bfloat16", "best", 0.95, 37.5),
    ("lstm:batch=128,seq=128,hidden=1024", "jax", 0.45, 18.8),
    ("gnn:nodes=65536,edges=1048576,d=256", "best", 0.80, 5.80),
    ("mlp", "jax", 0.80, 1.89),
    ("cnn", "jax", 0.80, 2.65),
)
OPERATIONS = ("softmax", "layer norm", "gelu tanh", "gelu erf", "cross-entropy")
ELEMENTS = {"64MiB": 1 << 24, "1GiB": 1 << 28}
EAGER = ("add", "add 1.5", "exp", "sum", "matmul")
BANDWIDTH, ADAM_BANDWIDTH = 0.80, 0.85  # minimum, relative to a copy
FIRST_STEPS = {"cold": 0.33, "warm": 0.25}


def rows() -> Iterator[Row]:
    """Every row, in the order of the table."""
    for spec, peer, limit, _ in TRAINING:
        memory = 1.0 if spec.startswith(("transformer", "resnet50")) else 0.0
        goals = [Goal(peer, limit)]
        if spec.startswith("lstm"):
            goals.append(Goal("torch", 1.0))
        yield Row(f"train {spec}", "train", spec, tuple(goals), memory=memory, losses=1)
    for name in OPERATIONS:
        for label, elements in ELEMENTS.items():
            goals = (Goal("toile copy", 1 / BANDWIDTH),)
            yield Row(f"{name} {label}", "bandwidth", f"{name},{elements}", goals, ("toile",),
                      ("", "copy"))
    yield Row("adam 100M", "bandwidth", f"adam,{100 << 20}",
              (Goal("toile copy", 1 / ADAM_BANDWIDTH),), ("toile",), ("", "copy"))
    for name in EAGER:
        yield Row(f"eager {name}", "eager", name, (Goal("toile cupy + 3 us", 1.0),), ("toile",),
                  ("", "cupy + 3 us"))
    for cache, limit in FIRST_STEPS.items():
        for spec in (TRAINING[0][0], "cnn"):
            yield Row(f"start {spec} {cache}", "train", spec, (Goal("jax", limit),),
                      ("toile", "jax"), cache=cache)


def machine() -> str:
    """The GPU's name, such as nvidia-h200."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except OSError:
        return "no GPU"
    return "-".join(text.splitlines()[0].lower().split())


def main() -> None:
    """Measure, print the table and write the file."""
    args = arguments(__doc__, "gpu")
    measure_rows(rows(), args, machine(), "benchmarks.gpu")


if __name__ == "__main__":
    main()
