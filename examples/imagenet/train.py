"""Train a residual network on photographs. Edit this file to change the training.

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


class State(ModelState):
    """Parameters, norm statistics, optimizer, and the loss scale of half precision."""

    scale: Any


# The metrics, accumulated over batches.
Metrics = metrics.Collection.create(
    loss=metrics.Average.from_output("loss"),
    accuracy=metrics.Accuracy,
    top5=metrics.TopKAccuracy.of(5),
)


def create_model(config, axis_name=None):
    """Create the network that a config describes; norms are synchronized over `axis_name`."""
    if config.model not in models.MODELS:
        raise ValueError(f"config.model: needed one of {list(models.MODELS)}, got {config.model!r}")
    return models.MODELS[config.model](
        num_classes=input_pipeline.CLASSES[config.dataset], num_filters=config.num_filters,
        axis_name=axis_name,
    )  # fmt: skip


def learning_rate(config):
    """Linear warmup to a rate proportional to the batch size, then cosine or square decay to 0."""
    peak = config.learning_rate * config.batch_size / 256
    last = max(config.num_steps, config.warmup_steps + 1)
    if config.schedule == "cosine":
        return optim.warmup_cosine_decay_schedule(0.0, peak, config.warmup_steps, last)
    decay = optim.polynomial_schedule(peak, 0.0, 2, last - config.warmup_steps)
    rise = optim.linear_schedule(0.0, peak, config.warmup_steps)
    return optim.join_schedules([rise, decay], [config.warmup_steps])


def create_optimizer(config):
    """SGD with Nesterov momentum, or LARS or LAMB for large batches; only kernels decay."""
    rate, kernels = learning_rate(config), "**/kernel"
    if config.optimizer == "sgd":
        return optim.chain(
            optim.add_decayed_weights(config.weight_decay, mask=kernels),
            optim.sgd(rate, config.momentum, nesterov=True),
        )
    if config.optimizer == "lars":
        return optim.lars(
            rate, config.weight_decay, weight_decay_mask=kernels, trust_ratio_mask=kernels,
            trust_coefficient=config.trust_coefficient, momentum=config.momentum,
        )  # fmt: skip
    if config.optimizer == "lamb":
        return optim.lamb(rate, weight_decay=config.weight_decay, mask=kernels)
    raise ValueError(
        f"config.optimizer: needed 'sgd', 'lars' or 'lamb', got {config.optimizer!r}"
    )


def create_state(config, key, devices: int = 1):
    """Create the initial parameters and the optimizer; norms are synchronized over devices."""
    shape = (1, config.image_size, config.image_size, 3)
    variables = create_model(config).init(key, jnp.zeros(shape), train=False)
    model = create_model(config, axis_name="batch" if devices > 1 else None)
    policy = Policy.parse(
        config.precision, overrides={"**/BatchNorm_*/**": "float32", "bn_init/**": "float32"}
    )
    return State.create(
        apply_fn=policy.wrap(model.apply), variables=variables, tx=create_optimizer(config),
        scale=policy.loss_scale(),
    )  # fmt: skip


def train_step(config):
    """Create the train step for a config; it returns the new state and the metrics of the batch."""

    def step(state, batch):
        classes = input_pipeline.CLASSES[config.dataset]
        labels = toile.nn.one_hot(batch["label"], classes)
        labels = optim.smooth_labels(labels, config.label_smoothing)

        def loss_fn(params):
            logits, changed = state.forward(params, batch["image"], train=True)
            loss = optim.softmax_cross_entropy(logits, labels)
            seen = Metrics.single_from_model_output(logits=logits, labels=batch["label"], loss=loss)
            return loss.mean(), (seen, changed)

        scale, finite, (_, (seen, changed)), grads = training.value_and_grad(
            loss_fn, state, has_aux=True, scale=state.scale
        )
        new = state.apply_gradients(grads=grads, collections=changed, scale=scale)
        return select_finite(finite, new, state.replace(scale=scale)), seen

    return step


@toile.jit
def eval_step(state, batch):
    """Return the metrics of a batch, and the logits; `mask` is False for padding."""
    logits = state.predict(batch["image"], train=False)
    loss = optim.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    seen = Metrics.single_from_model_output(
        logits=logits, labels=batch["label"], loss=loss, mask=batch["mask"]
    )
    return seen, logits


def evaluate(state, loader) -> dict[str, float]:
    """Compute loss and accuracies over a whole data set."""
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

    fresh = create_state(config, state_key, devices)
    state, seen = restore(workdir, fresh, Metrics.empty(), loader)
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
                rate = (step - start) * config.batch_size / (time.perf_counter() - began)
                writer.write_scalars(step, {"images_per_second": rate})
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
