"""Train a network on handwritten digits. Edit this file to change the training.

This file contains the step, the evaluation and the loop. `toile.training` provides the rest:
batches, metrics, the progress bar and checkpoints. A run that is stopped, by Ctrl-C or by kill,
resumes from its last checkpoint and ends with the same parameters as a run that was not
interrupted.
"""

import toile
import toile.numpy as jnp
from toile import optim, random
from toile.metrics import writers
from toile.training import checkpoints, metrics
from toile.training.interruption import StopRequests
from toile.training.progress import progress
from toile.training.train_state import TrainState

from . import input_pipeline, models

# The metrics, accumulated over batches.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"), accuracy=metrics.Accuracy
)


def create_model(config):
    """Create the network that a config describes."""
    return models.CNN(features=tuple(config.features), hidden=config.hidden)


def create_state(config, key, steps: int):
    """Create the initial parameters and the optimizer, whose rate decays to 0 over `steps`."""
    model = create_model(config)
    params = model.init(key, jnp.zeros((1, 28, 28, 1)))["params"]
    rate = optim.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, max(steps, config.warmup_steps + 1)
    )
    tx = optim.sgd(rate, config.momentum)
    return TrainState.create(apply_fn=model.apply, params=params, tx=tx)


@toile.jit
def train_step(state, seen, batch):
    """Return the state after one batch, and the metrics with this batch added."""

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return loss.mean(), (loss, logits)

    (_, (loss, logits)), grads = toile.value_and_grad(loss_fn, has_aux=True)(state.params)
    new = Metrics.single_from_model_output(logits=logits, labels=batch["label"], loss=loss)
    return state.apply_gradients(grads=grads), seen.merge(new)


@toile.jit
def eval_step(state, seen, batch):
    """Return the metrics with this batch added, and the logits; `mask` is False for padding."""
    logits = state.apply_fn({"params": state.params}, batch["image"])
    loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    new = Metrics.single_from_model_output(
        logits=logits, labels=batch["label"], loss=loss, mask=batch["mask"]
    )
    return seen.merge(new), logits


def evaluate(state, loader) -> dict[str, float]:
    """Compute loss and accuracy over a whole data set."""
    seen = Metrics.empty()
    for batch in loader:
        seen, _ = eval_step(state, seen, batch)
    return {name: float(value) for name, value in seen.compute().items()}


def save(config, workdir, state, seen, loader) -> None:
    """Save everything the rest of the run depends on."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    checkpoints.save_checkpoint(
        workdir, run, int(state.step), keep=config.keep_checkpoints, overwrite=True
    )


def restore(workdir, state, seen, loader):
    """Restore state, metrics and loader position from the newest checkpoint, if there is one."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    run = checkpoints.restore_checkpoint(workdir, run)
    loader.load_state_dict(run["loader"])
    return run["state"], run["seen"]


def train_and_evaluate(config, workdir):
    """Train until `config.num_epochs`; return the state, and whether it is finished.

    Metrics go to `workdir` as TensorBoard events and JSON lines, and a line per epoch to the
    terminal. If there is a checkpoint in `workdir`, the run resumes from it.
    """
    params_key, data_key = random.split(random.key(config.seed))
    loader, held_out = input_pipeline.loaders(config, data_key)
    total = config.num_epochs * len(loader)
    print(f"{loader.examples} digits for training, {held_out.examples} held out; "
          f"{total} steps of {config.batch_size}")  # fmt: skip

    state = create_state(config, params_key, total)
    state, seen = restore(workdir, state, Metrics.empty(), loader)
    start = int(state.step)
    if start:
        print(f"resuming after step {start} from {workdir}")
    writer = writers.create_default_writer(workdir, console=False)
    bar = progress(total=total, start=start, label="training")
    with writer, bar, StopRequests() as stop:
        for step, batch in zip(range(start + 1, total + 1), loader.forever()):
            state, seen = train_step(state, seen, batch)
            bar.advance()
            if step % config.log_every_steps == 0:
                values, seen = seen.compute(), Metrics.empty()
                bar.show(**values)
                writer.write_scalars(step, {f"train_{k}": v for k, v in values.items()})
            if step % len(loader) == 0:
                result = evaluate(state, held_out)
                writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
                print(f"epoch {step // len(loader):3d}   held-out loss {result['loss']:.4f}   "
                      f"accuracy {result['accuracy']:.1%}", flush=True)  # fmt: skip
            if step % config.checkpoint_every_steps == 0 or step == total or stop:
                save(config, workdir, state, seen, loader)
                if stop and step < total:
                    print(f"stopped after step {step}; run the same command to resume")
                    return state, False
    return state, True
