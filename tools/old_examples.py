"""Examples of Flax and JAX from earlier years, run with `toile run --since`.

`python -m tools.old_examples FLAX JAX` takes clones of the two repositories, checks out their
examples as they were on some days, runs those that need no package besides the ones that toile's
tests need, and prints how many run. `tools/old_example_data` stands for the packages that load
data; the number of epochs is set by flags, or in a copy of the file.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAND_INS = ROOT / "tools" / "old_example_data"
PATIENCE_S = 300
SHORT = ["--num_epochs=1", "--batch_size=64"]

# repository, day, folder -> scripts with their arguments
FLAX = {
    ("2020-04-01", "examples"): {
        "mnist/train.py": SHORT, "vae/train.py": SHORT, "graph/train_test.py": [],
        "seq2seq/train_test.py": []},
    ("2020-12-01", "examples"): {
        "mnist/mnist_lib_test.py": [], "vae/train.py": SHORT, "graph/train_test.py": [],
        "seq2seq/train_test.py": [], "imagenet/resnet_v1_test.py": []},
    ("2020-12-01", "linen_examples"): {
        "mnist/train_test.py": [], "vae/train.py": SHORT, "imagenet/models_test.py": [],
        "pixelcnn/model_test.py": [], "seq2seq/train_test.py": []},
    ("2021-07-01", "examples"): {
        "mnist/train_test.py": [], "vae/train.py": SHORT, "imagenet/models_test.py": [],
        "pixelcnn/model_test.py": [], "sst2/models_test.py": []},
    ("2022-07-01", "examples"): {
        "mnist/train_test.py": [], "vae/train.py": SHORT, "imagenet/models_test.py": [],
        "sst2/models_test.py": [], "ogbg_molpcba/models_test.py": []},
}
DESIGN = ("attention_simple autoencoder dense linear_regression mlp_explicit mlp_inline mlp_lazy "
          "tied_autoencoder weight_std").split()
JAX_DAYS = ("2020-04-01", "2021-07-01", "2022-07-01")
JAX_SCRIPTS = ("advi control_test examples_test gaussian_process_regression kernel_lsq "
               "mnist_classifier mnist_classifier_fromscratch mnist_vae resnet50 "
               "spmd_mnist_classifier_fromscratch").split()
IMAGES = '''
import numpy as np


def mnist_raw():
    draw = np.random.RandomState(0)
    return [f for n in (512, 128) for f in (
        draw.randint(0, 255, (n, 28, 28)).astype(np.uint8), draw.randint(0, 10, n))]


def mnist(permute_train=False):
    return [x.reshape(len(x), -1) / np.float32(255) if x.ndim == 3 else
            np.eye(10, dtype=np.float32)[x] for x in mnist_raw()]
'''


def checkout(clone: str, day: str, folder: str, target: Path) -> None:
    """Put a folder of a repository, as it was on a day, into another folder."""
    git = ["git", "-C", clone]
    until = f"--until={day}T23:59:59Z"  # without a time, git uses the present time of day
    commit = subprocess.run([*git, "rev-list", "-1", until, "HEAD"], check=True,
                            capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryFile() as file:
        subprocess.run([*git, "archive", commit, folder], check=True, stdout=file)
        file.seek(0)
        with tarfile.open(fileobj=file) as archive:
            archive.extractall(target, filter="data")


def run(script: Path, arguments: list[str], year: str, folder: Path, paths: list[Path]) -> str:
    """Run a script with `toile run`; the last line of its error, or nothing."""
    with tempfile.TemporaryDirectory() as own:
        os.symlink(ROOT / "toile", Path(own) / "toile")
        path = os.pathsep.join(map(str, [own, STAND_INS, *paths]))
        try:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "toile.run", "--since", year, str(script),
                 *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S,
                env={**os.environ, "PYTHONPATH": path})
        except subprocess.TimeoutExpired:
            return f"no end after {PATIENCE_S} s"
    if done.returncode == 0:
        return ""
    errors = re.findall(r"^\w*(?:Error|Found)\b.*", done.stderr + done.stdout, re.M)
    return (errors or done.stderr.strip().splitlines() or ["?"])[-1][:160]


def flax_runs(clone: str, work: Path) -> dict[tuple[str, str], str]:
    """The outcome of each example of Flax."""
    found = {}
    for (day, folder), scripts in FLAX.items():
        target = work / f"flax-{day}-{folder}"
        checkout(clone, day, folder, target)
        design = target / folder / "linen_design_test"
        more = {f"linen_design_test/{name}.py": [] for name in DESIGN if design.is_dir()}
        for name, arguments in {**scripts, **more}.items():
            script = target / folder / name
            key = f"Flax, {folder}, {day[:7]}", name
            found[key] = run(script, arguments, day[:4], script.parent, [])
            print(*key, found[key] or "runs", flush=True)
    return found


def jax_runs(clone: str, work: Path) -> dict[tuple[str, str], str]:
    """The outcome of each example of JAX."""
    found = {}
    for day in JAX_DAYS:
        target = work / f"jax-{day}"
        checkout(clone, day, "examples", target)
        (target / "examples" / "datasets.py").write_text(IMAGES)
        for name in JAX_SCRIPTS:
            script = target / "examples" / f"{name}.py"
            text = re.sub(r"num_epochs = \d+", "num_epochs = 1", script.read_text())
            script.write_text(re.sub(r"num_steps = \d+", "num_steps = 2", text))
            key = f"JAX, examples, {day[:7]}", script.name
            found[key] = run(script, [], day[:4], target, [target])
            print(*key, found[key] or "runs", flush=True)
    return found


def table(found: dict[tuple[str, str], str]) -> str:
    """How many examples of each year run, as rows of a table."""
    counts: dict[str, list[bool]] = collections.defaultdict(list)
    for (group, _), error in found.items():
        counts[group].append(not error)
    return "\n".join(f"| {g} | {sum(good)} of {len(good)} |" for g, good in counts.items())


def main() -> None:
    """Run the examples of both repositories."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("flax", help="a clone of Flax")
    parser.add_argument("jax", help="a clone of JAX")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(table({**flax_runs(args.flax, Path(folder)), **jax_runs(args.jax, Path(folder))}))


if __name__ == "__main__":
    main()
