"""Train a language model. Edit this file to change the training.

This file contains the step, the loop and the evaluation. `toile.training` provides the rest:
batches, metrics, the progress bar and checkpoints. A run that is stopped, by Ctrl-C or by kill,
resumes from its last checkpoint and ends with the same parameters as a run that was not
interrupted.
"""

import math
import time
from collections.abc import Callable
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

from . import input_pipeline, models, sample


class State(ModelState):
    """Parameters, optimizer and random streams, and the loss scale of half precision."""

    scale: Any


class Metrics(metrics.Collection):
    """The metrics, accumulated over the tokens of batches."""

    loss: metrics.LossMetric
    accuracy: metrics.Accuracy


def create_model(config, vocabulary: int):
    """Create the network that a config describes, for a vocabulary of this size."""
    return models.TransformerLM(
        vocabulary, config.features, config.layers, config.heads, config.qkv_features,
        config.mlp_features, longest=max(config.length, config.sample_length),
        dropout=config.dropout, tied=config.tied, remat=config.remat,
        scan_layers=config.scan_layers,
    )  # fmt: skip


def learning_rate(config):
    """Linear warmup, then cosine decay to 0 or the inverse square root of the step."""
    if config.schedule == "cosine":
        return optim.warmup_cosine_decay_schedule(
            0.0, config.learning_rate, config.warmup_steps,
            max(config.num_steps, config.warmup_steps + 1),
        )  # fmt: skip

    def rsqrt(step):
        warm = max(config.warmup_steps, 1)
        return config.learning_rate * jnp.minimum(step / warm, jnp.sqrt(warm / (step + 1)))

    return rsqrt


def create_optimizer(config):
    """AdamW, or LAMB for large batches; norms and biases do not decay."""
    matrices = ("**/kernel", "**/embedding")
    kinds: dict[str, Callable[..., optim.GradientTransformation]] = {
        "adamw": optim.adamw, "lamb": optim.lamb,
    }  # fmt: skip
    if config.optimizer not in kinds:
        raise ValueError(
            f"config.optimizer: needed one of {list(kinds)}, got {config.optimizer!r}"
        )
    tx = kinds[config.optimizer](
        learning_rate(config), b1=0.9, b2=config.beta2, eps=1e-9,
        weight_decay=config.weight_decay, mask=matrices,
    )  # fmt: skip
    return optim.chain(optim.clip_by_global_norm(config.clip_norm), tx)


def create_state(config, vocabulary: int, key):
    """Create the initial parameters and the optimizer."""
    params_key, dropout_key = random.split(key)
    model, policy = create_model(config, vocabulary), Policy.parse(config.precision)
    row = jnp.zeros((1, config.length), jnp.int32)
    return State.create(
        apply_fn=policy.wrap(model.apply), variables=model.init(params_key, row, row),
        tx=create_optimizer(config), rngs={"dropout": dropout_key}, scale=policy.loss_scale(),
    )  # fmt: skip


def measure(logits, targets):
    """Return the mean cross-entropy of the tokens, and the metrics; 0 is padding."""
    real = targets > 0
    loss = optim.softmax_cross_entropy_with_integer_labels(logits, targets)
    seen = Metrics.single_from_model_output(logits=logits, labels=targets, loss=loss, mask=real)
    return jnp.sum(loss * real) / jnp.maximum(real.sum(), 1), seen


def train_step(state, batch):
    """Return the state after one batch, and the metrics of the batch."""

    def loss_fn(params):
        logits, changed = state.forward(
            params, batch["inputs"], batch["positions"], batch["segments"], train=True
        )
        loss, seen = measure(logits, batch["targets"])
        return loss, (seen, changed)

    scale, finite, (_, (seen, changed)), grads = training.value_and_grad(
        loss_fn, state, has_aux=True, scale=state.scale
    )
    new = state.apply_gradients(grads=grads, collections=changed, scale=scale)
    return select_finite(finite, new, state.replace(scale=scale)), seen


@toile.jit
def eval_step(state, batch):
    """Return the metrics of a batch."""
    logits = state.predict(batch["inputs"], batch["positions"], batch["segments"])
    return measure(logits, batch["targets"])[1]


def evaluate(state, loader, text_bytes: int) -> dict[str, float]:
    """Compute the loss and accuracy per token, and the bits per byte of text, including END
    tokens."""
    seen = Metrics.empty()
    for batch in loader:
        seen = seen.merge(eval_step(state, batch))
    result = {name: float(value) for name, value in seen.compute().items()}
    bits = float(seen.loss.total) / math.log(2)
    return {**result, "bits_per_byte": bits / text_bytes}


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


def samples(config, state, tokens) -> list[str]:
    """Continue the prompts of the config with the model."""
    return sample.texts(
        create_model(config, tokens.size), state.params, tokens, list(config.prompts),
        random.key(config.seed), length=config.sample_length,
        temperature=config.sample_temperature, top_k=config.sample_top_k,
    )  # fmt: skip


def train_and_evaluate(config, workdir, devices: int = 1):
    """Train for `config.num_steps`; return the state, and whether it is finished.

    Metrics go to `workdir` as TensorBoard events and JSON lines, and a line and a sample per
    evaluation to the terminal. If there is a checkpoint in `workdir`, the run resumes from it.
    """
    state_key, data_key = random.split(random.key(config.seed))
    tokens, loader, held_out, text_bytes = input_pipeline.loaders(config, data_key)
    print(f"{loader.examples} rows of {config.length} tokens for training, {held_out.examples} "
          f"held out; {config.num_steps} steps of {config.batch_size} rows")  # fmt: skip

    fresh = create_state(config, tokens.size, state_key)
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
                result = evaluate(state, held_out, text_bytes)
                writer.write_scalars(step, {f"eval_{k}": v for k, v in result.items()})
                text = samples(config, state, tokens)[0]
                writer.write_texts(step, {"sample": text})
                print(f"step {step:5d}   held-out loss {result['loss']:.4f}   "
                      f"bits per byte {result['bits_per_byte']:.3f}   "
                      f"{time.perf_counter() - began:.0f} s   {text[:60]!r}",
                      flush=True)  # fmt: skip
            if step % config.checkpoint_every_steps == 0:
                save(config, workdir, state, seen, loader)
            if stop or step >= config.num_steps:
                break
    if step > start:
        path = save(config, workdir, state, seen, loader)
        if step < config.num_steps:
            print(f"stopped after step {step} and saved {path}; run the same command to resume")
    return state, step >= config.num_steps
