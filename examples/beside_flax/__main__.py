"""Compare examples with Flax step by step, with the same weights, batches and recipe.

`python -m examples.beside_flax mnist seq2seq` trains each example and its counterpart in Flax, and
writes both loss curves to `parity.png` and the numbers to `parity.json`, in one folder per example
under `--workdir`. Training amplifies rounding errors. To show by how much, `--moved` adds a third
run: Flax with initial weights that are changed by one unit in the last place, up or down at random.
"""

import argparse
import importlib
import json
from pathlib import Path

import numpy as np

import toile
from toile import random
from toile.training import curves

from .base import Example, Side
from .counterparts import EXAMPLES

# The config, the number of steps, and changed fields. imagenet's own learning rate is meant for
# longer runs: with it, two runs of Flax whose weights differ by one rounding unit at the start have
# losses that differ by 0.1 after 50 steps.
RECIPES: dict[str, tuple[str, int, dict]] = {
    "mnist": ("default", 372, {}),
    "seq2seq": ("tiny", 800, {}),
    "imagenet": ("tiny", 50, {"learning_rate": 0.05}),
    "lm1b": ("tiny", 120, {}),
    "cifar10": ("tiny", 50, {}),
    "t5": ("tiny", 50, {}),
}


def example(name: str, config: str, changes: dict | None = None) -> Example:
    """Create an example by name, with one of its configs."""
    module = importlib.import_module(f"..{name}.configs.{config}", __package__)
    chosen = module.get_config()
    chosen.update(changes or {})
    return EXAMPLES[name](chosen)


def losses(side: Side, batches) -> list[float]:
    """Return the loss at each step."""
    state, found = side.state, []
    for batch in batches:
        state, seen = side.step(state, batch)
        found.append(float(seen.compute()["loss"] if hasattr(seen, "compute") else seen))
    return found


def side_by_side(chosen: Example, steps: int, moved: bool = False) -> dict[str, list[float]]:
    """Return the losses of each side, by name."""
    batches, ours = chosen.batches(steps), chosen.ours()
    variables = {"params": ours.state.params, **getattr(ours.state, "collections", {})}
    variables = toile.tree.map(np.asarray, variables)
    streams = getattr(ours.state, "rngs", {})
    rngs = {name: np.asarray(random.key_data(key)) for name, key in streams.items()}
    found = {
        "toile": losses(ours, batches),
        "flax": losses(chosen.theirs(variables, rngs), batches),
    }
    if moved:
        found["flax, moved"] = losses(chosen.theirs(neighbours(variables), rngs), batches)
    return found


def neighbours(variables: dict, seed: int = 0) -> dict:
    """Move each number by one unit in the last place, up or down at random.

    Moving all numbers in the same direction would change only their scale, which normalization
    layers remove."""
    generator = np.random.default_rng(seed)

    def moved(x: np.ndarray) -> np.ndarray:
        ends = np.where(generator.random(x.shape) < 0.5, np.float32(np.inf), np.float32(-np.inf))
        return np.nextafter(x, ends)

    return toile.tree.map(moved, variables)


def smooth(values: list[float]) -> dict[int, float]:
    """Replace each fiftieth of the steps with its mean, so that the curves can be distinguished."""
    size = max(1, len(values) // 50)
    parts = range(0, len(values) - size + 1, size)
    return {i + size: float(np.mean(values[i : i + size])) for i in parts}


def main() -> None:
    """Run both sides, print the differences and draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="*", help=f"examples to run, from {', '.join(RECIPES)}")
    parser.add_argument("--steps", type=int, default=0, help="number of steps; 0 for the README's")
    parser.add_argument("--moved", action="store_true")
    parser.add_argument("--workdir", type=Path, default=Path("runs/beside_flax"))
    args = parser.parse_args()
    for name in args.examples or RECIPES:
        config, steps, changes = RECIPES[name]
        found = side_by_side(example(name, config, changes), args.steps or steps, args.moved)
        folder = args.workdir / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "parity.json").write_text(json.dumps(found))
        lines = {side: smooth(found[side]) for side in ("toile", "flax")}
        apart = {"difference": dict(enumerate(np.subtract(found["toile"], found["flax"]), 1))}
        curves.picture(
            folder / "parity.png", {f"{name}, training loss": lines, "toile - flax": apart}
        )
        for side in [side for side in found if side != "flax"]:
            gaps = np.abs(np.subtract(found[side], found["flax"]))
            print(f"{name}, {len(gaps)} steps: {side} differs from flax by {np.median(gaps):.1e} "
                  f"in the median, by {gaps.max():.1e} at most; last losses "
                  f"{found[side][-1]:.6f} and {found['flax'][-1]:.6f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
