"""Train a residual network on small images. Edit this file to change the training.

This file contains the step, the loop and the evaluation. `toile.training` provides the rest:
batches, metrics, the progress bar and checkpoints. A run that is stopped, by Ctrl-C or by kill,
resumes from its last checkpoint and ends with the same parameters as a run that was not
interrupted.
"""

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

CLASSES = 10


class State(ModelState):
    """Parameters, norm statistics, optimizer, random streams, averaged parameters, loss scale."""

    average: Any
    scale: Any


# The metrics, accumulated over batches.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"), accuracy=metrics.Accuracy
)


def create_model(config):
    """Create the network that a config describes."""
    if config.model == "resnet":
        return models.ResNet(tuple(config.blocks), config.features, CLASSES)
    if config.model == "wide_resnet":
        return models.WideResNet(config.depth, config.width, config.dropout, CLASSES)
    raise ValueError(f"config.model: needed 'resnet' or 'wide_resnet', got {config.model!r}")


def create_state(config, key):
    """Create the initial parameters and SGD with Nesterov momentum; only kernels decay."""
    params_key, dropout_key, mixup_key = random.split(key, 3)
    model = create_model(config)
    policy = Policy.parse(config.precision, overrides={"**/BatchNorm_*/**": "float32"})
    variables = model.init(params_key, jnp.zeros((1, 32, 32, 3)))
    rate = optim.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, config.warmup_steps,
        max(config.num_steps, config.warmup_steps + 1),
    )  # fmt: skip
    tx = optim.chain(
        optim.add_decayed_weights(config.weight_decay, mask="**/kernel"),
        optim.sgd(rate, config.momentum, nesterov=True),
    )
    return State.create(
        apply_fn=policy.wrap(model.apply), variables=variables, tx=tx,
        rngs={"dropout": dropout_key, "mixup": mixup_key}, scale=policy.loss_scale(),
        average=toile.tree.map(jnp.copy, variables["params"]),
    )  # fmt: skip


def mixed(config, key, images, labels):
    """Blend the images and labels of a batch with those of the reversed batch (mixup)."""
    if not config.mixup:
        return images, labels
    share = random.beta(key, config.mixup, config.mixup)
    blend = lambda x: share * x + (1 - share) * x[::-1]
    return blend(images), blend(labels)


def train_step(config):
    """Create the train step for a config; it returns the new state and the metrics of the batch."""

    def step(state, batch):
        labels = optim.smooth_labels(
            toile.nn.one_hot(batch["label"], CLASSES), config.label_smoothing
        )
        key = state.step_rngs()["mixup"]
        images, labels = mixed(config, key, batch["image"], labels)

        def loss_fn(params):
            logits, changed = state.forward(params, images, train=True)
            loss = optim.softmax_cross_entropy(logits, labels)
            seen = Metrics.single_from_model_output(logits=logits, labels=batch["label"], loss=loss)
            return loss.mean(), (seen, changed)

        scale, finite, (_, (seen, changed)), grads = training.value_and_grad(
            loss_fn, state, has_aux=True, scale=state.scale
        )
        new = state.apply_gradients(grads=grads, collections=changed, scale=scale)
        # The average starts as the mean of the first steps; then its decay grows to ema_decay.
        forget = jnp.maximum(1 - config.ema_decay, 1 / (state.step + 1.0))
        new = new.replace(average=optim.incremental_update(new.params, state.average, forget))
        return select_finite(finite, new, state.replace(scale=scale)), seen

    return step


@toile.jit
def eval_step(state, batch):
    """Return the metrics of a batch with the averaged parameters, and the logits."""
    logits = state.apply_fn(state.variables(state.average), batch["image"])
    loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    seen = Metrics.single_from_model_output(
        logits=logits, labels=batch["label"], loss=loss, mask=batch["mask"]
    )
    return seen, logits


def evaluate(state, loader) -> dict[str, float]:
    """Compute loss and accuracy over a whole data set."""
    seen = Metrics.empty()
    for batch in loader:
        seen = seen.merge(eval_step(state, batch)[0])
    return {name: float(value) for name, value in seen.compute().items()}


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
    loader, held_out = input_pipeline.loaders(config, data_key)
    print(f"{loader.examples} images for training, {held_out.examples} held out; "
          f"{config.num_steps} steps of {config.batch_size}")  # fmt: skip

    state, seen = restore(workdir, create_state(config, state_key), Metrics.empty(), loader)
    start = step = int(state.step)
    if start:
        print(f"resuming after step {start} from {workdir}")
    update = training.replicated(train_step(config), devices=first_devices(devices))
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
                print(f"step {step:5d}   held-out loss {result['loss']:.4f}   "
                      f"accuracy {result['accuracy']:.2%}   "
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
