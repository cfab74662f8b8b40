"""Examples beside Flax: the same weights, batches and recipe on both sides, step by step.

`python -m examples.beside_flax mnist seq2seq` trains each example and its counterpart in Flax, and
writes both loss curves into `parity.png` of a folder per example in `--workdir`, with the numbers
in `parity.json`. Training amplifies round-off; `--moved` shows how much by a third run, Flax's own
from weights that are each moved by one unit in the last place, up or down by chance.
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

# The config, how many steps of it, and what is changed: at imagenet's own rate, which is right for
# longer runs, two runs of Flax that begin with one unit of round-off are 0.1 apart after 50 steps.
RECIPES: dict[str, tuple[str, int, dict]] = {
    "mnist": ("default", 372, {}),
    "seq2seq": ("tiny", 800, {}),
    "imagenet": ("tiny", 50, {"learning_rate": 0.05}),
    "lm1b": ("tiny", 120, {}),
    "cifar10": ("tiny", 50, {}),
    "t5": ("tiny", 50, {}),
}


def example(name: str, config: str, changes: dict | None = None) -> Example:
    """An example by its name, with one of its configs."""
    module = importlib.import_module(f"..{name}.configs.{config}", __package__)
    chosen = module.get_config()
    chosen.update(changes or {})
    return EXAMPLES[name](chosen)


def losses(side: Side, batches) -> list[float]:
    """The loss at each step."""
    state, found = side.state, []
    for batch in batches:
        state, seen = side.step(state, batch)
        found.append(float(seen.compute()["loss"] if hasattr(seen, "compute") else seen))
    return found


def side_by_side(chosen: Example, steps: int, moved: bool = False) -> dict[str, list[float]]:
    """Losses by whose they are."""
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
    """Each number moved by one unit in the last place, up or down by chance.

    All moved the same way would be a change of scale, which norms take out again."""
    generator = np.random.default_rng(seed)

    def moved(x: np.ndarray) -> np.ndarray:
        ends = np.where(generator.random(x.shape) < 0.5, np.float32(np.inf), np.float32(-np.inf))
        return np.nextafter(x, ends)

    return toile.tree.map(moved, variables)


def smooth(values: list[float]) -> dict[int, float]:
    """Means of a fiftieth of the steps each, so that two curves can be told apart."""
    size = max(1, len(values) // 50)
    parts = range(0, len(values) - size + 1, size)
    return {i + size: float(np.mean(values[i : i + size])) for i in parts}


def main() -> None:
    """Run, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="*", help=f"of {', '.join(RECIPES)}")
    parser.add_argument("--steps", type=int, default=0, help="0: as many as the README says")
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
