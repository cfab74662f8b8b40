"""The training of a network on handwritten digits: this is the file to change.

The step, the loop and the evaluation are written out. What is taken from `toile.training` is
plumbing: batches, metrics, progress bar, checkpoints. A run that was stopped, by Ctrl-C or by a
kill, continues from its last checkpoint and ends with the same parameters, bit by bit.
"""

import time
from typing import Any

import toile
import toile.numpy as jnp
from toile import optim, random, training
from toile.experimental import multihost_utils
from toile.metrics import writers
from toile.training import checkpoints, metrics
from toile.training.interruption import StopRequests
from toile.training.mixed_precision import Policy, select_finite
from toile.training.progress import progress
from toile.training.train_state import TrainState

from . import input_pipeline, models


class State(TrainState):
    """Parameters and optimizer, and the loss scale of half precision."""

    scale: Any


# What is measured, summed up over batches.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"), accuracy=metrics.Accuracy
)


def create_model(config):
    """The network that a config describes."""
    return models.CNN(features=tuple(config.features), hidden=config.hidden)


def create_state(config, key, steps: int):
    """Fresh parameters and a fresh optimizer, whose rate falls to 0 over `steps`."""
    model, policy = create_model(config), Policy.parse(config.precision)
    params = model.init(key, jnp.zeros((1, 28, 28, 1)))["params"]
    rate = optim.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, max(steps, config.warmup_steps + 1)
    )
    tx = optim.sgd(rate, config.momentum)
    return State.create(
        apply_fn=policy.wrap(model.apply), params=params, tx=tx, scale=policy.loss_scale()
    )


@toile.jit
def train_step(state, seen, batch):
    """The state after one batch, and the metrics with this batch added."""

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return loss.mean(), (loss, logits)

    scale, finite, (_, (loss, logits)), grads = training.value_and_grad(
        loss_fn, state, has_aux=True, scale=state.scale
    )
    seen = seen.merge(
        Metrics.single_from_model_output(logits=logits, labels=batch["label"], loss=loss)
    )
    new = state.apply_gradients(grads=grads, scale=scale)
    return select_finite(finite, new, state.replace(scale=scale)), seen


def on_devices(count):
    """`train_step` on so many devices of each process: all take the same step on their parts."""
    devices = [d for d in toile.devices() if d.local_hardware_id < count]
    if len(devices) == 1:
        return train_step
    step = training.replicated(
        lambda state, batch: train_step(state, Metrics.empty(), batch), devices=devices
    )

    def run(state, seen, batch):
        state, new = step(state, batch)
        return state, seen.merge(new)

    return run


@toile.jit
def eval_step(state, seen, batch):
    """The metrics with this batch added, and the logits; `mask` is False for padding."""
    logits = state.apply_fn({"params": state.params}, batch["image"])
    loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    new = Metrics.single_from_model_output(
        logits=logits, labels=batch["label"], loss=loss, mask=batch["mask"]
    )
    return seen.merge(new), logits


def evaluate(state, loader) -> dict[str, float]:
    """Loss and accuracy over a whole data set."""
    seen = Metrics.empty()
    for batch in loader:
        seen, _ = eval_step(state, seen, batch)
    return {name: float(value) for name, value in seen.compute().items()}


def save(config, workdir, state, seen, loader) -> str:
    """Write everything that the rest of the run depends on; the file's path."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    return checkpoints.save_checkpoint_multiprocess(
        workdir, run, int(state.step), keep=config.keep_checkpoints, overwrite=True
    )


def restore(workdir, state, seen, loader):
    """State and metrics of the newest checkpoint, if there is one; the loader goes to its place."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    run = checkpoints.restore_checkpoint(workdir, run)
    loader.load_state_dict(run["loader"])
    return run["state"], run["seen"]


def train_and_evaluate(config, workdir):
    """Train until `config.num_epochs`; the state, and whether it got there.

    Metrics go to `workdir` as TensorBoard events and JSON lines, and a line per epoch to the
    terminal. If there is a checkpoint in `workdir`, the run continues from it. Under mpirun all
    processes take the steps, and the first one does the rest.
    """
    first = toile.process_index() == 0
    params_key, data_key = random.split(random.key(config.seed))
    loader, held_out = input_pipeline.loaders(config, data_key)
    total = config.num_epochs * len(loader)
    if first:
        print(f"{loader.examples} digits to train on, {held_out.examples} held out; "
              f"{total} steps of {config.batch_size}")  # fmt: skip

    fresh = create_state(config, params_key, total)
    state, seen = restore(workdir, fresh, Metrics.empty(), loader)
    start = step = int(state.step)
    if start and first:
        print(f"continuing after step {start} from {workdir}")
    take_step = on_devices(config.devices)
    began = time.perf_counter()
    writer = writers.create_default_writer(workdir if first else None, console=False)
    bar = progress(total=total, start=start, label="training", enabled=None if first else False)
    with writer, bar, StopRequests() as asked:
        stop = False
        while step < total and not stop:
            for batch in loader:  # what is left of the epoch
                state, seen = take_step(state, seen, batch)
                step += 1
                bar.advance()
                if step % config.log_every_steps == 0:
                    values = seen.compute()
                    seen = Metrics.empty()
                    bar.show(**values)
                    writer.write_scalars(step, {f"train_{k}": v for k, v in values.items()})
                if step % config.checkpoint_every_steps == 0:
                    save(config, workdir, state, seen, loader)
                stop = multihost_utils.process_allgather(bool(asked)).any()  # in any process
                if stop:
                    break
            if step % len(loader) == 0 and first:
                result = evaluate(state, held_out)
                writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
                print(f"epoch {step // len(loader):3d}   held-out loss {result['loss']:.4f}   "
                      f"accuracy {result['accuracy']:.1%}   "
                      f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
    if step > start:
        path = save(config, workdir, state, seen, loader)
        if step < total and first:
            print(f"stopped after step {step} and saved {path}; the same command goes on from it")
    return state, step >= total
