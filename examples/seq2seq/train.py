"""Train an encoder-decoder that learns to add. Edit this file to change the training.

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
from toile.experimental import multihost_utils
from toile.metrics import writers
from toile.training import checkpoints, metrics
from toile.training.devices import first_devices
from toile.training.interruption import StopRequests
from toile.training.mixed_precision import Policy, select_finite
from toile.training.progress import progress
from toile.training.train_state import TrainState

from . import input_pipeline, models


class State(TrainState):
    """Parameters and optimizer, and the loss scale of half precision."""

    scale: Any


# The metrics, accumulated over batches: the loss per token, and the share of right answers.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"), accuracy=metrics.Average.from_output("right")
)


def create_state(config, task, key):
    """Create the initial parameters and the optimizer."""
    model, policy = models.Seq2Seq(config.features), Policy.parse(config.precision)
    question = jnp.zeros((1, task.question_length, task.size))
    answer = jnp.zeros((1, task.answer_length, task.size))
    params = model.init(key, question, answer)["params"]
    steps = max(config.num_steps, config.warmup_steps + 1)
    rate = optim.warmup_cosine_decay_schedule(0.0, config.learning_rate, config.warmup_steps, steps)
    tx = optim.chain(optim.clip_by_global_norm(config.clip_norm), optim.adam(rate))
    return State.create(
        apply_fn=policy.wrap(model.apply), params=params, tx=tx, scale=policy.loss_scale()
    )


def measure(logits, answer, mask):
    """Return the mean cross-entropy of each answer's real tokens, and whether all are right."""
    target = answer[:, 1:]
    real = jnp.arange(target.shape[1]) < models.lengths(target)[:, None]
    each = optim.softmax_cross_entropy(logits, target)
    loss = jnp.where(real, each, 0.0).sum(axis=1) / real.sum(axis=1)
    right = ((logits.argmax(-1) == target.argmax(-1)) | ~real).all(axis=1)
    seen = Metrics.single_from_model_output(loss=loss, right=right.astype(jnp.float32), mask=mask)
    return loss.mean(), seen


def train_step(state, batch):
    """Return the state after one batch, and the metrics of the batch.

    The decoder reads the true answer up to each token (teacher forcing).
    """

    def loss_fn(params):
        logits, _ = state.apply_fn({"params": params}, batch["question"], batch["answer"])
        return measure(logits, batch["answer"], None)

    scale, finite, (_, seen), grads = training.value_and_grad(
        loss_fn, state, has_aux=True, scale=state.scale
    )
    new = state.apply_gradients(grads=grads, scale=scale)
    return select_finite(finite, new, state.replace(scale=scale)), seen


@toile.jit
def eval_step(state, seen, batch):
    """Return the metrics with this batch added, and the tokens from greedy decoding."""
    logits, written = state.apply_fn(
        {"params": state.params}, batch["question"], batch["answer"], teacher_force=False
    )
    _, new = measure(logits, batch["answer"], batch["mask"])
    return seen.merge(new), written


def evaluate(state, loader) -> tuple[dict[str, float], tuple[dict, toile.Array]]:
    """Return loss and accuracy over all held-out sums, and the first batch with its answers."""
    seen, shown = Metrics.empty(), None
    for batch in loader:
        seen, written = eval_step(state, seen, batch)
        shown = shown or (batch, written)
    assert shown is not None  # a loader has at least one batch
    return {name: float(value) for name, value in seen.compute().items()}, shown


def as_text(task, batch, written, count: int) -> list[str]:
    """Format some questions with the model's answers, and the right ones where they differ."""
    lines = []
    for a, b, tokens in list(zip(batch["a"], batch["b"], np.asarray(written)))[:count]:
        given, wanted = task.decode(tokens), str(a + b)
        verdict = "" if given == wanted else f"   wrong: should be {wanted}"
        lines.append(f"  {task.question(a, b)} = {given}{verdict}")
    return lines


def save(config, workdir, state, seen, loader) -> str:
    """Save everything the rest of the run depends on; return the path of the file."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    return checkpoints.save_checkpoint_multiprocess(
        workdir, run, int(state.step), keep=config.keep_checkpoints, overwrite=True
    )


def restore(workdir, state, seen, loader):
    """Restore state, metrics and loader position from the newest checkpoint, if there is one."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    run = checkpoints.restore_checkpoint(workdir, run)
    loader.load_state_dict(run["loader"])
    return run["state"], run["seen"]


def devices_of_all(count: int):
    """Return the first `count` devices of each process."""
    first_devices(count)  # creates CPU devices; an error if there are too few
    processes = range(toile.process_count())
    return [d for p in processes for d in toile.local_devices(process_index=p)[:count]]


def train_and_evaluate(config, workdir, devices: int = 1):
    """Train for `config.num_steps`; return the state, and whether it is finished.

    Metrics go to `workdir` as TensorBoard events and JSON lines, and a line per evaluation to the
    terminal. If there is a checkpoint in `workdir`, the run resumes from it. Under mpirun, all
    processes take the steps, and the first one does everything else.
    """
    first = toile.process_index() == 0
    params_key, data_key = random.split(random.key(config.seed))
    task, loader, held_out = input_pipeline.loaders(config, data_key)
    if first:
        print(f"{loader.examples} sums for training, {held_out.examples} held out; "
              f"{config.num_steps} steps of {config.batch_size}")  # fmt: skip

    fresh = create_state(config, task, params_key)
    state, seen = restore(workdir, fresh, Metrics.empty(), loader)
    start = step = int(state.step)
    if start and first:
        print(f"resuming after step {start} from {workdir}")
    update = training.replicated(train_step, devices=devices_of_all(devices))
    began = time.perf_counter()
    writer = writers.create_default_writer(workdir if first else None, console=False)
    shown = None if first else False  # None: only on a terminal
    bar = progress(total=config.num_steps, start=start, label="training", enabled=shown)
    with writer, bar, StopRequests() as asked:
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
            if first and (step % config.eval_every_steps == 0 or step == config.num_steps):
                result, answers = evaluate(state, held_out)
                writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
                print(f"step {step:5d}   held-out loss {result['loss']:.4f}   "
                      f"right {result['accuracy']:.2%}   "
                      f"{time.perf_counter() - began:.0f} s")  # fmt: skip
                print("\n".join(as_text(task, *answers, config.show)), flush=True)
            if step % config.checkpoint_every_steps == 0:
                save(config, workdir, state, seen, loader)
            stop = multihost_utils.process_allgather(bool(asked)).any()  # in any process
            if stop or step >= config.num_steps:
                break
    if step > start:
        path = save(config, workdir, state, seen, loader)
        if step < config.num_steps and first:
            print(f"stopped after step {step} and saved {path}; run the same command to resume")
    return state, step >= config.num_steps
