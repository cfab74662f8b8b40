"""Run packages written for JAX on jax and on toile: a program for each, and their own tests.

`python -m tools.ecosystem FOLDER` installs the packages in `PACKAGES` into an environment in
FOLDER, clones the repositories in `CLONES`, runs the programs in `tests/interop/programs` with this
environment on jax and on toile, and prints the table for docs/ecosystem.md. `--tests PATH` also
runs the tests at PATH, such as the tests in a clone of Flax, file by file with pytest on both
libraries, and prints how many pass.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
TOLERANCE = 1e-4  # tolerance for numbers, relative to 1 + their absolute value
PATIENCE_S = 1800

# Maps the name of a program to its package and version.
PACKAGES = {
    "array_api": "array-api-compat==1.16.0",
    "blackjax": "blackjax==1.7.1",
    "chex": "chex==0.1.92",
    "clu": "clu==0.0.12",
    "diffrax": "diffrax==0.7.2",
    "distrax": "distrax==0.1.9",
    "dm_pix": "dm-pix==0.4.5",
    "e3nn_jax": "e3nn-jax==0.21.0",
    "einops": "einops==0.8.2",
    "equinox": "equinox==0.13.8",
    "evosax": "evosax==0.3.2",
    "flashbax": "flashbax==0.1.3",
    "flax_nnx": "flax==0.12.8",
    "grain": "grain==0.2.18",
    "gymnax": "gymnax==1.0.1",
    "haiku": "dm-haiku==0.0.17",
    "jaxopt": "jaxopt==0.8.5",
    "jaxtyping": "jaxtyping==0.3.11",
    "jraph": "jraph==0.0.6.dev0",
    "lineax": "lineax==0.1.1",
    "mctx": "mctx==0.0.71",
    "mjx": "mujoco-mjx==3.17.0",
    "numpyro": "numpyro==0.22.0",
    "optax": "optax==0.2.8",
    "optimistix": "optimistix==0.1.0",
    "orbax": "orbax-checkpoint==0.12.8",
    "ott": "ott-jax==0.6.0",
    "penzai": "penzai==0.2.5",
    "rlax": "rlax==0.1.9",
    "safetensors": "safetensors==0.8.0",
    "seqio": "seqio==0.0.20",
    "tfp": "tensorflow-probability==0.25.0",
    "transformers": "transformers==4.40.2",
    "treescope": "treescope==0.1.10",
}

# Repositories whose packages are not on PyPI, with a commit; the programs import clones of them.
CLONES = {
    "google/flaxformer": "399ea3a",
    "google-research/scenic": "4a38d47",
    "google-research/t5x": "cc342d4",
    "google-research/vision_transformer": "c6de1e5",
    "google/airio": "HEAD",  # t5x imports it
    "google-research/jestimator": "HEAD",  # t5x imports it
}
NEEDED_BY_CLONES = (
    "aqtp==0.9.0", "cached_property", "fiddle", "gin-config", "pandas", "tensorboard",
    "tensorflow-cpu==2.21.0", "tensorflow-datasets",
)
CLONED = {
    "flaxformer": "flaxformer 399ea3a", "scenic": "scenic 4a38d47", "t5x": "t5x cc342d4",
    "vit_jax": "vit_jax c6de1e5",
}


class Run(NamedTuple):
    """The outcome of a program on one library: its results, or the last line of its error."""

    results: list[list[float]] | None
    error: str


def environment(folder: Path) -> Path:
    """Install the packages and toile, and return the path of the environment's Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, "pytest", *PACKAGES.values()], check=True)
    subprocess.run([*install, *NEEDED_BY_CLONES], check=True)
    subprocess.run([*install, "--editable", str(ROOT)], check=True)
    for repository, revision in CLONES.items():
        clone = folder / "clones" / repository.rpartition("/")[2]
        if not clone.exists():
            url = f"https://github.com/{repository}"
            subprocess.run(["git", "clone", "--quiet", url, clone], check=True)
            subprocess.run(["git", "checkout", "--quiet", revision], cwd=clone, check=True)
    return python


def program_runs(python: Path, on_toile: bool) -> dict[str, Run]:
    """Run all programs on one library."""
    start = ["toile", "run", "-m"] if on_toile else []
    clones = (python.absolute().parents[1] / "clones").glob("*")
    path = os.pathsep.join([*map(str, clones), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [python, "-W", "ignore", "-m", *start, "tests.interop.program_results"],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": path})
    runs = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"name"'):
            row: dict[str, Any] = json.loads(line)
            error = row.get("error", "").strip().rpartition("\n")[2]
            runs[row["name"]] = Run(row.get("results"), error)
    return runs


def agree(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> bool:
    """Whether two results have the same shapes and numbers."""
    return [len(x) for x in ours] == [len(x) for x in theirs] and all(
        abs(a - b) <= TOLERANCE * (1 + abs(b)) or a != a and b != b
        for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True))


def verdict(ours: Run, theirs: Run) -> str:
    """The last column of the table."""
    if ours.results is None:
        return f"fails: {ours.error}"
    if theirs.results is None:
        return f"runs; on jax it fails: {theirs.error}"
    return "the same numbers" if agree(ours.results, theirs.results) else "other numbers"


def suite(python: Path, path: Path) -> None:
    """Print how many tests of each file pass on jax and on toile."""
    total = [0, 0]
    for file in sorted([*path.rglob("*_test.py"), *path.rglob("test_*.py")]):
        counts = []
        for start in ([], ["toile", "run", "-m"]):
            done = subprocess.run(
                [python, "-m", *start, "pytest", "-q", "-p", "no:cacheprovider", file],
                cwd=path, capture_output=True, text=True, timeout=PATIENCE_S)
            found = re.search(r"(\d+) passed", done.stdout)
            counts.append(int(found[1]) if found else 0)
        total = [a + b for a, b in zip(total, counts, strict=True)]
        print(f"{file.relative_to(path)}: {counts[0]} pass on jax, {counts[1]} on toile")
    print(f"all: {total[0]} pass on jax, {total[1]} on toile")


def main(arguments: Sequence[str]) -> None:
    """Run the command; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tests", type=Path, help="a folder of tests to run on both")
    args = parser.parse_args(arguments)
    python = environment(args.folder)
    theirs, ours = program_runs(python, on_toile=False), program_runs(python, on_toile=True)
    print("| package | a program with it |\n|---|---|")
    for name, package in {**PACKAGES, **CLONED}.items():
        print(f"| {package.replace('==', ' ')} | {verdict(ours[name], theirs[name])} |")
    if args.tests:
        suite(python, args.tests)


if __name__ == "__main__":
    main(sys.argv[1:])
