"""Training and inference programs of many kinds: toile, jax with flax and optax, and torch.

The programs are in `benchmarks/zoo`. `python -m benchmarks.programs` measures them on the CPU, or
on an NVIDIA GPU with `--platform gpu`; the other options are those of `benchmarks.cpu`. Every
program has a row for its step and the peak memory, and a row for the time until its first step in a
new process.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import cpu, gpu
from benchmarks.cpu_rows import Goal, Row
from benchmarks.zoo import names

MEMORY = 1.05  # maximum, relative to jax
FIRST_STEP = 0.5  # maximum, relative to jax


def rows(platform: str) -> Iterator[Row]:
    """Every row, in the order of the table."""
    for name in names():
        yield Row(name, "program", f"{name},{platform}", (Goal("best", 1.0),), memory=MEMORY)
    for name in names():
        yield Row(f"start {name}", "program", f"{name},{platform}", (Goal("jax", FIRST_STEP),),
                  ("toile", "jax"), cache="cold")


def main() -> None:
    """Measure, print the table and write the file."""
    args = cpu.arguments(__doc__, platform="")
    machine = cpu.machine() if args.platform == "cpu" else gpu.machine()
    cpu.measure_rows(rows(args.platform), args, machine, "benchmarks.programs")


if __name__ == "__main__":
    main()
