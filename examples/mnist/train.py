"""The training of a network on handwritten digits: this is the file to change.

The step, the evaluation and the loop are written out. What is taken from `toile.training` is
plumbing: batches, metrics, progress bar, checkpoints. A run that was stopped, by Ctrl-C or by a
kill, continues from its last checkpoint and ends with the same parameters, bit by bit.
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

# What is measured, summed up over batches.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"), accuracy=metrics.Accuracy
)


def create_model(config):
    """The network that a config describes."""
    return models.CNN(features=tuple(config.features), hidden=config.hidden)


def create_state(config, key, steps: int):
    """Fresh parameters and a fresh optimizer, whose rate falls to 0 over `steps`."""
    model = create_model(config)
    params = model.init(key, jnp.zeros((1, 28, 28, 1)))["params"]
    rate = optim.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps, max(steps, config.warmup_steps + 1)
    )
    tx = optim.sgd(rate, config.momentum)
    return TrainState.create(apply_fn=model.apply, params=params, tx=tx)


@toile.jit
def train_step(state, seen, batch):
    """The state after one batch, and the metrics with this batch added."""

    def loss_fn(params):
        logits = state.apply_fn({"params": params}, batch["image"])
        loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return loss.mean(), (loss, logits)

    (_, (loss, logits)), grads = toile.value_and_grad(loss_fn, has_aux=True)(state.params)
    new = Metrics.single_from_model_output(logits=logits, labels=batch["label"], loss=loss)
    return state.apply_gradients(grads=grads), seen.merge(new)


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


def save(config, workdir, state, seen, loader) -> None:
    """Write everything that the rest of the run depends on."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    checkpoints.save_checkpoint(
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
    terminal. If there is a checkpoint in `workdir`, the run continues from it.
    """
    params_key, data_key = random.split(random.key(config.seed))
    loader, held_out = input_pipeline.loaders(config, data_key)
    total = config.num_epochs * len(loader)
    print(f"{loader.examples} digits to train on, {held_out.examples} held out; "
          f"{total} steps of {config.batch_size}")  # fmt: skip

    state = create_state(config, params_key, total)
    state, seen = restore(workdir, state, Metrics.empty(), loader)
    start = int(state.step)
    if start:
        print(f"continuing after step {start} from {workdir}")
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
                    print(f"stopped after step {step}; the same command goes on from there")
                    return state, False
    return state, True
