"""The same network trained by toile and by Flax from the same weights on the same batches.

`python -m examples.imagenet.parity` prints both loss curves, the largest difference, and images per
second of both, and writes `parity.png` into `--workdir`. Flax's network is models.py with its two
import lines changed. Training amplifies round-off; how much shows a third run, Flax's own from
weights moved by one unit in the last place. Needs jax, flax and optax: pip install 'toile[test]'.
"""

import argparse
import json
import sys
import time
import types
from pathlib import Path

import numpy as np

import toile
from toile import optim, random
from toile.training import curves

from . import input_pipeline, models
from .configs import tiny


def flax_models() -> types.ModuleType:
    """models.py, with flax and jax in its import lines."""
    source = Path(models.__file__).read_text()
    source = source.replace("from toile import linen as nn", "from flax import linen as nn")
    source = source.replace("from toile import numpy as jnp", "from jax import numpy as jnp")
    module = types.ModuleType("flax_models")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(source, str(models.__file__), "exec"), module.__dict__)
    return module


def train_step(transforms, optimizers, model, tx):
    """SGD with label smoothing, written once for `toile, toile.optim` and for `jax, optax`."""

    def step(params, stats, opt_state, image, label):
        labels = optimizers.smooth_labels(transforms.nn.one_hot(label, model.num_classes), 0.1)

        def loss_fn(params):
            logits, changed = model.apply(
                {"params": params, "batch_stats": stats}, image, mutable=["batch_stats"]
            )
            return optimizers.softmax_cross_entropy(logits, labels).mean(), changed

        (loss, changed), grads = transforms.value_and_grad(loss_fn, has_aux=True)(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optimizers.apply_updates(params, updates)
        return params, changed["batch_stats"], opt_state, loss

    return transforms.jit(step, donate_argnums=(0, 1, 2))


def run(transforms, optimizers, model, variables, batches, rate: float) -> dict:
    """The losses, and the images per second of all steps but the first."""
    tx = optimizers.sgd(rate, 0.9, nesterov=True)
    copy = transforms.tree.map(transforms.numpy.array, variables)
    params, stats = copy["params"], copy["batch_stats"]
    opt_state = tx.init(params)
    step, losses = train_step(transforms, optimizers, model, tx), []
    for i, batch in enumerate(batches):
        if i == 1:
            began = time.perf_counter()
        params, stats, opt_state, loss = step(
            params, stats, opt_state, batch["image"], batch["label"]
        )
        losses.append(float(loss))
    speed = sum(len(b["label"]) for b in batches[1:]) / (time.perf_counter() - began)
    return {"loss": losses, "images_per_second": speed}


def side_by_side(model: str, size: int, batch: int, steps: int, rate=0.01, **options) -> dict:
    """Losses and images per second of each; options are fields of the network."""
    import jax
    import optax

    config = tiny.get_config()
    config.image_size = config.stored_size = size
    config.batch_size, config.train_examples, config.held_out = batch, max(200, 4 * batch), 10
    loader, _ = input_pipeline.loaders(config, random.key(0))
    batches = [b for b, _ in zip(loader.forever(), range(steps))]
    options["num_classes"] = input_pipeline.CLASSES["shapes"]
    ours, theirs = models.MODELS[model](**options), flax_models().MODELS[model](**options)
    shape = (1, size, size, 3)
    variables = ours.init(random.key(1), np.zeros(shape, np.float32), train=False)
    variables = toile.tree.map(np.asarray, variables)
    moved = toile.tree.map(lambda x: np.nextafter(x, np.float32(np.inf)), variables)
    found = {
        "toile": run(toile, optim, ours, variables, batches, rate),
        "flax": run(jax, optax, theirs, variables, batches, rate),
        "flax, moved": run(jax, optax, theirs, moved, batches, rate),
    }
    for name in ("toile", "flax, moved"):
        apart = np.subtract(found[name]["loss"], found["flax"]["loss"])
        found[name]["largest_difference"] = float(abs(apart).max())
    return found


def main() -> None:
    """Run both and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--model", default="resnet18", choices=models.MODELS)
    parser.add_argument("--filters", type=int, default=64, help="of the first convolution")
    parser.add_argument("--size", type=int, default=64, help="of the images, in pixels")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--workdir", type=Path, default="runs/imagenet_parity")
    args = parser.parse_args()
    found = side_by_side(
        args.model, args.size, args.batch, args.steps, args.rate, num_filters=args.filters
    )
    args.workdir.mkdir(parents=True, exist_ok=True)
    (args.workdir / "parity.json").write_text(json.dumps(found))
    lines = {name: dict(enumerate(found[name]["loss"], 1)) for name in ("toile", "flax")}
    curves.picture(args.workdir / "parity.png", {f"{args.model}, loss": lines})
    for step, (a, b) in enumerate(zip(found["toile"]["loss"], found["flax"]["loss"]), 1):
        print(f"step {step:3d}   toile {a:.6f}   flax {b:.6f}   {a - b:+.1e}")
    for name in ("toile", "flax, moved"):
        print(f"largest difference of {name} from flax: {found[name]['largest_difference']:.2e}")
    for name in ("toile", "flax"):
        print(f"{name}: {found[name]['images_per_second']:.1f} images per second")


if __name__ == "__main__":
    main()
