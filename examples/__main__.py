"""Run the examples with the recipes in their READMEs, and print the results.

`python -m examples` runs all examples, and `python -m examples vae graph` runs only these two.
`--steps=N` stops each run after N steps. Runs are stored in `runs/` and can be resumed.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """One row of the table: a training run, and the result that it must reach."""

    example: str
    config: str = "tiny"
    metric: str = "eval_accuracy"
    reach: float | None = None
    at_most: bool = False  # whether lower values are better
    flags: tuple[str, ...] = ()
    steps: str = "num_steps"  # the config field with the length of the run
    title: str = ""
    argument: str = ""  # of the config file

    @property
    def name(self) -> str:
        return self.title or self.example

    def command(self, steps: int | None) -> list[str]:
        """The command line."""
        command = [
            sys.executable, "-m", f"examples.{self.example}.main", f"--workdir={self.workdir}",
            f"--config={ROOT / 'examples' / self.example / 'configs' / self.config}.py"
            + (f":{self.argument}" if self.argument else ""), *self.flags,
        ]  # fmt: skip
        return command if steps is None else [*command, f"--config.{self.steps}={steps}"]

    @property
    def workdir(self) -> Path:
        """The folder of the run."""
        return Path("runs") / self.name.replace(" ", "-")

    def result(self) -> float | None:
        """The last value of the metric."""
        lines = (self.workdir / "metrics.jsonl").read_text().splitlines()
        found = [entry[self.metric] for entry in map(json.loads, lines) if self.metric in entry]
        return found[-1] if found else None


@dataclass(frozen=True)
class Script:
    """A script that needs no flags and writes nothing."""

    example: str
    module: str
    metric: str = ""
    reach: float | None = None
    at_most: bool = False

    @property
    def name(self) -> str:
        return f"{self.example} {self.module}"

    def command(self, steps: int | None) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", f"examples.{self.example}.{self.module}"]

    def result(self) -> float | None:
        """None: a script has no metric."""
        return None


RUNS: tuple[Run | Script, ...] = (
    Run("mnist", "default", reach=0.97, steps="num_epochs"),
    Run("vae", metric="eval_elbo", reach=-110.0),
    Run("seq2seq", reach=1.0),
    Run("text_classification", reach=0.99),
    Run("text_classification", flags=("--config.model=bag",), title="text_classification bag"),
    Run("graph", "karate", reach=32 / 34, title="graph karate"),
    Run("graph", "karate", flags=("--config.layer=gat",), reach=32 / 34, title="graph karate gat"),
    Run("graph", metric="eval_map", reach=0.85),
    Run("sequence_tagging", reach=0.94),
    Run("sequence_tagging", flags=("--config.model=transformer",), reach=0.90,
        title="sequence_tagging transformer"),
    Run("cifar10", reach=0.98),
    Run("imagenet", reach=0.97),
    Run("lm1b", metric="eval_bits_per_byte", reach=2.25, at_most=True),
    Run("t5", metric="eval_loss", reach=2.2, at_most=True),
    *(Run("finetuning", metric="eval_loss", reach=reach, at_most=True, argument=method,
          title=f"finetuning {method}") for method, reach in (
              ("full", 2.0), ("lora", 2.05), ("qlora", 2.05), ("prompt", 2.22))),
    *(Run("finetuning", reach=reach, argument=method, title=f"finetuning {method}")
      for method, reach in (("probe", 0.75), ("dpo", 0.95))),
    Script("autograd_classics", "neural_net"),
    Script("autograd_classics", "rnn"),
)  # fmt: skip


def table(rows: list[tuple]) -> str:
    """Format a table of name, metric, result, required result and seconds."""
    lines = [f"{'example':30} {'metric':14} {'result':>9} {'needed':>9} {'time':>8}"]
    for run, value, seconds in rows:
        needed = "" if run.reach is None else f"{run.reach:.4g}"
        shown = "ran" if value is None else f"{value:.4g}"
        lines.append(f"{run.name:30} {run.metric:14} {shown:>9} {needed:>9} {seconds:6.0f} s")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Run the requested examples; return 1 if one failed or missed its required result."""
    steps = None
    names = [a for a in arguments if not a.startswith("--")]
    for flag in (a for a in arguments if a.startswith("--")):
        if not flag.startswith("--steps="):
            raise SystemExit(f"needed --steps=N or names of examples, got {flag}")
        steps = int(flag.removeprefix("--steps="))
    known = list(dict.fromkeys(run.example for run in RUNS))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"needed names of examples, {', '.join(known)}, got {', '.join(unknown)}")
    rows, failed = [], []
    for run in RUNS:
        if names and run.example not in names:
            continue
        print(f"\n=== {run.name}", flush=True)
        began = time.perf_counter()
        if subprocess.run(run.command(steps), check=False).returncode:
            failed.append(run.name)
            continue
        value = run.result()
        rows.append((run, value, time.perf_counter() - began))
        short = run.reach is not None and (
            value is None or (value > run.reach if run.at_most else value < run.reach)
        )
        if short and steps is None:
            failed.append(run.name)
    print(f"\n{table(rows)}")
    if failed:
        print(f"failed or missed the required result: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
