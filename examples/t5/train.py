"""Pretrain T5 by span corruption. Edit this file to change the training.

This file contains the step, the loop and the evaluation. `toile.training` provides the rest:
batches, metrics, the progress bar and checkpoints. A run that is stopped, by Ctrl-C or by kill,
resumes from its last checkpoint and ends with the same parameters as a run that was not
interrupted.
"""

import dataclasses
import time
from typing import Any

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


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Data and hyperparameters; gin files set them (`Recipe.num_steps = 100`)."""

    dataset: str = "topics"  # the included text; or "tfds", "file" or "seqio"
    tfds_name: str = "c4/en"  # any data set whose examples have a `text` feature
    train_split: str = "train"
    test_split: str = "validation"
    train_documents: int = 0  # number of documents to use; 0 for all
    test_documents: int = 1000  # only for seqio tasks
    train_file: str = ""
    test_file: str = ""
    seqio_task: str = ""
    held_out: int = 9  # every ninth topic of the included text is held out
    vocabulary_file: str = ""  # path of a sentencepiece model; "" for bytes

    inputs_length: int = 512
    targets_length: int = 114  # only for seqio tasks; otherwise computed from the spans
    noise_density: float = 0.15
    mean_span: float = 3.0

    precision: str = "float32"  # or mixed_bfloat16, mixed_float16 (weights stay in float32)
    optimizer: str = "adafactor"  # or "adamw"
    schedule: str = "rsqrt"  # or "cosine", after linear warmup
    learning_rate: float = 1.0
    warmup_steps: int = 10_000
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    z_loss: float = 1e-4  # keeps the normalizer of the logits near 1
    batch_size: int = 128
    num_steps: int = 1_000_000
    seed: int = 0

    eval_batch_size: int = 128
    eval_every_steps: int = 1000
    log_every_steps: int = 100
    checkpoint_every_steps: int = 1000
    keep_checkpoints: int = 2


class State(ModelState):
    """Parameters, optimizer and random streams, and the loss scale of half precision."""

    scale: Any


# The metrics, accumulated over the tokens of batches.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"), accuracy=metrics.Accuracy
)


def learning_rate(recipe):
    """Constant, then the inverse square root of the step; or warmup and cosine decay to 0."""
    if recipe.schedule == "cosine":
        return optim.warmup_cosine_decay_schedule(
            0.0, recipe.learning_rate, recipe.warmup_steps,
            max(recipe.num_steps, recipe.warmup_steps + 1),
        )  # fmt: skip
    return lambda step: recipe.learning_rate / jnp.sqrt(jnp.maximum(step, recipe.warmup_steps))


def create_optimizer(recipe):
    """Adafactor, with which T5 was trained, or AdamW."""
    rate = learning_rate(recipe)
    if recipe.optimizer == "adafactor":
        return optim.adafactor(rate, decay_rate=0.8, multiply_by_parameter_scale=True)
    if recipe.optimizer == "adamw":
        tx = optim.adamw(rate, b2=0.98, weight_decay=recipe.weight_decay, mask="**/kernel")
        return optim.chain(optim.clip_by_global_norm(recipe.clip_norm), tx)
    raise ValueError(
        f"Recipe.optimizer: needed 'adafactor' or 'adamw', got {recipe.optimizer!r}"
    )


def create_state(recipe, config, key):
    """Create the initial parameters and the optimizer."""
    params_key, dropout_key = random.split(key)
    model, policy = models.T5(config), Policy.parse(recipe.precision)
    row = jnp.ones((1, 8), jnp.int32)
    return State.create(
        apply_fn=policy.wrap(model.apply), variables=model.init(params_key, row, row),
        tx=create_optimizer(recipe), rngs={"dropout": dropout_key}, scale=policy.loss_scale(),
    )  # fmt: skip


def measure(logits, targets):
    """Return the mean cross-entropy of the tokens, and the metrics; 0 is padding."""
    real = targets > 0
    loss = optim.softmax_cross_entropy_with_integer_labels(logits, targets)
    seen = Metrics.single_from_model_output(logits=logits, labels=targets, loss=loss, mask=real)
    return jnp.sum(loss * real) / jnp.maximum(real.sum(), 1), seen


def train_step(recipe):
    """Create the train step for a recipe; it returns the new state and the metrics of the batch."""

    def step(state, batch):
        def loss_fn(params):
            logits, changed = state.forward(params, batch["inputs"], batch["targets"], train=True)
            loss, seen = measure(logits, batch["targets"])
            extra = toile.nn.logsumexp(logits, axis=-1) ** 2
            real = batch["targets"] > 0
            loss = loss + recipe.z_loss * jnp.sum(extra * real) / jnp.maximum(real.sum(), 1)
            return loss, (seen, changed)

        scale, finite, (_, (seen, changed)), grads = training.value_and_grad(
            loss_fn, state, has_aux=True, scale=state.scale
        )
        new = state.apply_gradients(grads=grads, collections=changed, scale=scale)
        return select_finite(finite, new, state.replace(scale=scale)), seen

    return step


@toile.jit
def eval_step(state, batch):
    """Return the metrics of a batch, and the logits."""
    logits = state.predict(batch["inputs"], batch["targets"])
    return measure(logits, batch["targets"])[1], logits


def evaluate(state, loader) -> dict[str, float]:
    """Compute loss and accuracy per token over a whole data set."""
    seen = Metrics.empty()
    for batch in loader:
        seen = seen.merge(eval_step(state, batch)[0])
    return {name: float(value) for name, value in seen.compute().items()}


def save(recipe, workdir, state, seen, loader) -> str:
    """Save everything the rest of the run depends on; return the path of the file."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    return checkpoints.save_checkpoint(
        workdir, run, int(state.step), keep=recipe.keep_checkpoints, overwrite=True
    )


def restore(workdir, state, seen, loader):
    """Restore state, metrics and loader position from the newest checkpoint, if there is one."""
    run = {"state": state, "seen": seen, "loader": loader.state_dict()}
    run = checkpoints.restore_checkpoint(workdir, run)
    loader.load_state_dict(run["loader"])
    return run["state"], run["seen"]


def train_and_evaluate(recipe, config, workdir, devices: int = 1):
    """Train for `recipe.num_steps`; return the state, and whether it is finished.

    Metrics go to `workdir` as TensorBoard events and JSON lines, and a line per evaluation to
    the terminal. If there is a checkpoint in `workdir`, the run resumes from it.
    """
    state_key, data_key = random.split(random.key(recipe.seed))
    loader, held_out = input_pipeline.loaders(recipe, config.vocabulary, data_key)
    print(f"{loader.examples} windows for training, {held_out.examples} held out; "
          f"{recipe.num_steps} steps of {recipe.batch_size}")  # fmt: skip

    fresh = create_state(recipe, config, state_key)
    state, seen = restore(workdir, fresh, Metrics.empty(), loader)
    start = step = int(state.step)
    if start:
        print(f"resuming after step {start} from {workdir}")
    update = training.replicated(train_step(recipe), devices=first_devices(devices))
    began = time.perf_counter()
    writer = writers.create_default_writer(workdir, console=False)
    bar = progress(total=recipe.num_steps, start=start, label="training")
    with writer, bar, StopRequests() as stop:
        for batch in loader.forever() if start < recipe.num_steps else ():
            state, new = update(state, batch)
            seen = seen.merge(new)
            step += 1
            bar.advance()
            if step % recipe.log_every_steps == 0:
                values = seen.compute()
                seen = Metrics.empty()
                bar.show(**values)
                writer.write_scalars(step, {f"train_{k}": v for k, v in values.items()})
            if step % recipe.eval_every_steps == 0 or step == recipe.num_steps:
                result = evaluate(state, held_out)
                writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
                print(f"step {step:5d}   held-out loss {result['loss']:.4f}   "
                      f"accuracy {result['accuracy']:.2%}   "
                      f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
            if step % recipe.checkpoint_every_steps == 0:
                save(recipe, workdir, state, seen, loader)
            if stop or step >= recipe.num_steps:
                break
    if step > start:
        path = save(recipe, workdir, state, seen, loader)
        if step < recipe.num_steps:
            print(f"stopped after step {step} and saved {path}; run the same command to resume")
    return state, step >= recipe.num_steps
