"""Training a convolutional network on 1 and on 2 CPU devices, and the overhead of calls.

Three things are measured:

- Throughput: the same batch on one single-threaded device, and divided between two such devices.
  `two/one` is a ratio of times for the same work, so 0.625 means 1.6 times the throughput.
- Overhead: `training.replicated` on one device, compared with `jit`.
- Calls: `pmap` of a function that does very little, with and without a sum over the devices.

If a GPU is the default device, only the overhead is measured, on the GPU; set `TOILE_PLATFORM=cpu`
to use the CPU. Run `python -m benchmarks.parallel` on an otherwise idle machine; `--json FILE`
writes the numbers and the machine's name to a file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import toile
from benchmarks import gpu, timing
from toile import linen as nn
from toile import optim, training
from toile.training.train_state import TrainState

BATCH = 128
GOALS: timing.Goals = {
    "training the CNN on 1 and 2 devices": [("two", "one", 1 / 1.6)],
    "replicated on one device": [("replicated", "jit", 1.03)],
    "replicated on one device, with the batch there": [("replicated", "jit", 1.03)],
    "calls": [],
}


class CNN(nn.Module):
    """The network of examples/mnist."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for features in (32, 64):
            x = nn.relu(nn.Conv(features, (3, 3))(x))
            x = nn.avg_pool(x, (2, 2), (2, 2))
        x = nn.relu(nn.Dense(256)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


def train_step(state: Any, batch: Any) -> Any:
    """One step of gradient descent."""

    def loss_of(params: Any) -> Any:
        logits = state.apply_fn({"params": params}, batch["image"])
        losses = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean()

    loss, grads = toile.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


def training_with(
    step: Callable[..., Any], threads: int, placed: bool = False
) -> Callable[[], None]:
    """A step as a function that keeps its state, as a training loop does.

    If `placed` is True, the batch is put on the device beforehand."""
    random = np.random.default_rng(0)
    batch = {"image": random.normal(size=(BATCH, 28, 28, 1)).astype(np.float32),
             "label": random.integers(0, 10, BATCH).astype(np.int32)}
    if placed:
        batch = toile.device_put(batch)
    model = CNN()
    params = model.init(toile.random.key(0), batch["image"][:1])["params"]
    tx = optim.sgd(0.01, 0.9)
    kept = [TrainState.create(apply_fn=model.apply, params=params, tx=tx)]

    def once() -> None:
        with toile.threads(threads):
            kept[0], loss = step(kept[0], batch)
            loss.block_until_ready()

    return once


def suites() -> dict[str, timing.Cases]:
    """The cases by title."""
    titles = list(GOALS)
    jitted = toile.jit(train_step, donate_argnums=0)
    if toile.default_backend() == "gpu":
        one = training.replicated(train_step, devices=toile.devices()[:1])
        return {
            title: {"jit": training_with(jitted, 1, placed),
                    "replicated": training_with(one, 1, placed)}
            for title, placed in zip(titles[1:3], (False, True), strict=True)
        }
    if toile.device_count() < 2:
        toile.config.update("jax_num_cpu_devices", 2)
    devices = toile.devices()
    pairs = np.ones((2, 4), np.float32)
    add = toile.pmap(lambda x: x + 1)
    psum = toile.pmap(lambda x: toile.lax.psum(x, "i"), axis_name="i")
    one = training.replicated(train_step, devices=devices[:1])
    two = training.replicated(train_step, devices=devices[:2])
    return {
        titles[0]: {"one": training_with(one, 1), "two": training_with(two, 1)},
        titles[1]: {"jit": training_with(jitted, 1), "replicated": training_with(one, 1)},
        titles[3]: {
            "pmap": lambda: add(pairs), "pmap with psum": lambda: psum(pairs),
            "jit": (lambda f: lambda: f(pairs))(toile.jit(lambda x: x + 1)),
        },
    }


if __name__ == "__main__":
    found = {"gpu": gpu.machine()} if toile.default_backend() == "gpu" else {}
    timing.main(__doc__, suites, GOALS, found)
