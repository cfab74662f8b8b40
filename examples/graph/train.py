"""Train a graph network on labels of nodes or of graphs. Edit this file to change the training.

This file contains the step, the loop and the evaluation. `toile.training` provides the rest:
batches, metrics, the progress bar and checkpoints. A run that is stopped, by Ctrl-C or by kill,
resumes from its last checkpoint and ends with the same parameters as a run that was not
interrupted.
"""

import time
from typing import Any

import numpy as np

import toile
import toile.numpy as jnp
from toile import optim, random, training
from toile.metrics import writers
from toile.training import checkpoints, metrics
from toile.training.devices import first_devices
from toile.training.interruption import StopRequests
from toile.training.mixed_precision import Policy, select_finite
from toile.training.progress import progress
from toile.training.train_state import ModelState

from . import input_pipeline, models


class State(ModelState):
    """Parameters, optimizer and random streams, and the loss scale of half precision."""

    scale: Any


# The metrics of training.
Metrics = metrics.Collection.create(loss=metrics.Average.from_output("loss"))


def create_model(config, task):
    """Create the network that a config describes."""
    if config.layer not in models.LAYERS:
        raise ValueError(f"config.layer: needed one of {list(models.LAYERS)}, got {config.layer!r}")
    return models.GraphNetwork(
        config.layer, config.features, config.layers, task.outputs, task.of_graphs,
        task.node_sizes, task.edge_sizes, config.dropout, config.residual,
    )  # fmt: skip


def create_state(config, task, graph, key):
    """Create the initial parameters and the optimizer, whose learning rate decays to 0."""
    params_key, dropout_key = random.split(key)
    model, policy = create_model(config, task), Policy.parse(config.precision)
    variables = model.init(params_key, graph)
    rate = optim.cosine_decay_schedule(config.learning_rate, config.num_steps)
    tx = optim.adamw(rate, weight_decay=config.weight_decay)
    return State.create(
        apply_fn=policy.wrap(model.apply), variables=variables, tx=tx,
        rngs={"dropout": dropout_key}, scale=policy.loss_scale(),
    )  # fmt: skip


def measure(logits, batch):
    """Return the mean cross-entropy of the known labels, and the metrics.

    A node has one of several classes. A graph has several binary labels; unknown labels are NaN.
    """
    labels = batch["labels"]
    if labels.ndim == 1:
        each = optim.softmax_cross_entropy_with_integer_labels(logits, labels)
        known = batch["mask"]
    else:
        known = batch["mask"][:, None] & ~jnp.isnan(labels)
        each = optim.sigmoid_binary_cross_entropy(logits, jnp.where(known, labels, 0))
    loss = jnp.where(known, each, 0).sum() / jnp.maximum(known.sum(), 1)
    return loss, Metrics.single_from_model_output(loss=each, mask=known)


def own(batch):
    """Return the batch of this device by removing the first axis, the device axis."""
    return toile.tree.map(lambda x: x[0], batch)


def train_step(state, batch):
    """Return the state after one batch, and the metrics of the batch."""
    batch = own(batch)

    def loss_fn(params):
        logits, changed = state.forward(params, batch["graph"], train=True)
        loss, seen = measure(logits, batch)
        return loss, (seen, changed)

    scale, finite, (_, (seen, changed)), grads = training.value_and_grad(
        loss_fn, state, has_aux=True, scale=state.scale
    )
    new = state.apply_gradients(grads=grads, collections=changed, scale=scale)
    return select_finite(finite, new, state.replace(scale=scale)), seen


@toile.jit
def eval_step(state, batch):
    """Return the metrics of a batch, and the logits."""
    batch = own(batch)
    logits = state.predict(batch["graph"])
    return measure(logits, batch)[1], logits


def evaluate(state, loader) -> dict[str, float]:
    """Compute the loss and the accuracy (nodes) or mean average precision of a whole data set."""
    seen, labels, scores = Metrics.empty(), [], []
    for batch in loader:
        new, logits = eval_step(state, batch)
        seen = seen.merge(new)
        labels.append(batch["labels"][batch["mask"]])
        scores.append(np.asarray(logits)[batch["mask"][0]])
    quality = measured(np.concatenate(labels), np.concatenate(scores))
    return {"loss": float(seen.compute()["loss"]), **quality}


def measured(labels, scores) -> dict[str, float]:
    """Return the accuracy of classes, or the mean average precision of binary labels."""
    if labels.ndim == 1:
        return {"accuracy": float((scores.argmax(axis=1) == labels).mean())}
    return {"map": float(np.nanmean(average_precisions(labels, scores)))}


def average_precisions(labels, scores) -> np.ndarray:
    """Return the average precision of each column; NaN if it lacks positive or negative labels."""
    found = []
    for column, score in zip(labels.T, scores.T):
        known = ~np.isnan(column)
        order = np.argsort(-score[known], kind="stable")
        hits = column[known][order] > 0
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        usable = hits.any() and not hits.all()
        found.append(precision[hits].mean() if usable else np.nan)
    return np.array(found)


def save(config, workdir, state, seen, loader) -> str:
    """Save everything the rest of the run depends on; return the path of the file."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    return checkpoints.save_checkpoint(
        workdir, run, int(state.step), keep=config.keep_checkpoints, overwrite=True
    )


def restore(workdir, state, seen, loader):
    """Restore state, metrics and loader position from the newest checkpoint, if there is one."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    run = checkpoints.restore_checkpoint(workdir, run)
    loader.load_state_dict(run["loader"])
    return run["state"], run["seen"]


def train_and_evaluate(config, workdir, devices: int = 1):
    """Train for `config.num_steps`; return the state, and whether it is finished.

    Metrics go to `workdir` as TensorBoard events and JSON lines, and a line per evaluation to the
    terminal. If there is a checkpoint in `workdir`, the run resumes from it.
    """
    state_key, data_key = random.split(random.key(config.seed))
    task, loader, held_out = input_pipeline.loaders(config, data_key, devices)
    print(f"{loader.examples} graphs for training, {held_out.examples} held out; "
          f"{config.num_steps} steps of {config.batch_size}")  # fmt: skip

    fresh = create_state(config, task, own(next(iter(held_out)))["graph"], state_key)
    held_out.seek(0)  # this batch is not skipped
    state, seen = restore(workdir, fresh, Metrics.empty(), loader)
    start = step = int(state.step)
    if start:
        print(f"resuming after step {start} from {workdir}")
    update = training.replicated(train_step, devices=first_devices(devices))
    began = time.perf_counter()
    writer = writers.create_default_writer(workdir, console=False)
    bar = progress(total=config.num_steps, start=start, label="training")
    with writer, bar, StopRequests() as stop:
        for batch in loader.forever() if start < config.num_steps else ():
            state, new = update(state, batch)
            seen = seen.merge(new)
            step += 1
            bar.advance()
            if step % config.log_every_steps == 0:
                values = seen.compute()
                seen = Metrics.empty()
                bar.show(**values)
                writer.write_scalars(step, {f"train_{k}": v for k, v in values.items()})
            if step % config.eval_every_steps == 0 or step == config.num_steps:
                result = evaluate(state, held_out)
                writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
                shown = "   ".join(f"{name} {value:.4f}" for name, value in result.items())
                print(f"step {step:5d}   held-out {shown}   "
                      f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
            if step % config.checkpoint_every_steps == 0:
                save(config, workdir, state, seen, loader)
            if stop or step >= config.num_steps:
                break
    if step > start:
        path = save(config, workdir, state, seen, loader)
        if step < config.num_steps:
            print(f"stopped after step {step} and saved {path}; run the same command to resume")
    return state, step >= config.num_steps
