"""Train a variational autoencoder. Edit this file to change the training.

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
    """Parameters, optimizer and random streams, and the loss scale of half precision."""

    scale: Any


# The metrics, in nats per image: elbo = reconstruction - divergence.
Metrics = metrics.Collection.create(
    elbo=metrics.Average.from_output("elbo"),
    reconstruction=metrics.Average.from_output("reconstruction"),
    divergence=metrics.Average.from_output("divergence"),
)


def create_model(config):
    """Create the network that a config describes."""
    return models.VAE(hidden=config.hidden, latents=config.latents)


def create_state(config, key):
    """Create the initial parameters and the optimizer, whose learning rate decays to 0."""
    params_key, noise_key = random.split(key)
    model, policy = create_model(config), Policy.parse(config.precision)
    variables = model.init({"params": params_key, "noise": noise_key}, jnp.zeros((1, 28, 28, 1)))
    rate = optim.cosine_decay_schedule(config.learning_rate, config.num_steps)
    return State.create(
        apply_fn=policy.wrap(model.apply), variables=variables, tx=optim.adam(rate),
        rngs={"noise": noise_key}, scale=policy.loss_scale(),
    )  # fmt: skip


def measure(outputs, batch):
    """Return the evidence lower bound, averaged over images, and the metrics.

    log p(x) >= E log p(x | z) - KL(q(z | x) || N(0, 1)), where q is a diagonal Gaussian.
    """
    logits, mean, log_var = outputs
    pixels = batch["image"].reshape(logits.shape)
    reconstruction = -optim.sigmoid_binary_cross_entropy(logits, pixels).sum(axis=-1)
    divergence = 0.5 * (mean**2 + jnp.exp(log_var) - 1 - log_var).sum(axis=-1)
    elbo = reconstruction - divergence
    seen = Metrics.single_from_model_output(
        elbo=elbo, reconstruction=reconstruction, divergence=divergence, mask=batch.get("mask")
    )
    return elbo.mean(), seen


def train_step(state, batch):
    """Return the state after one batch, and the metrics of the batch."""

    def loss_fn(params):
        outputs, changed = state.forward(params, batch["image"])
        elbo, seen = measure(outputs, batch)
        return -elbo, (seen, changed)

    scale, finite, (_, (seen, changed)), grads = training.value_and_grad(
        loss_fn, state, has_aux=True, scale=state.scale
    )
    new = state.apply_gradients(grads=grads, collections=changed, scale=scale)
    return select_finite(finite, new, state.replace(scale=scale)), seen


@toile.jit
def eval_step(state, batch, key):
    """Return the metrics of a batch, with codes drawn with a key, and the reconstructed images."""
    outputs = state.predict(batch["image"], rngs={"noise": key})
    _, seen = measure(outputs, batch)
    return seen, toile.nn.sigmoid(outputs[0]).reshape(batch["image"].shape)


def evaluate(state, loader) -> dict[str, float]:
    """Compute the metrics over a whole data set, with the same noise each time."""
    seen = Metrics.empty()
    for number, batch in enumerate(loader):
        new, _ = eval_step(state, batch, random.key(number))
        seen = seen.merge(new)
    return {name: float(value) for name, value in seen.compute().items()}


def generate(state, key, count: int):
    """Generate images [count, 28, 28] by decoding codes drawn with a key."""
    latents = state.params["encoder"]["mean"]["bias"].size
    codes = random.normal(key, (count, latents))
    return state.predict(codes, method="generate").reshape((count, 28, 28))


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
    print(f"{loader.examples} digits for training, {held_out.examples} held out; "
          f"{config.num_steps} steps of {config.batch_size}")  # fmt: skip

    fresh = create_state(config, state_key)
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
                print(f"step {step:5d}   held-out ELBO {result['elbo']:.2f} nats   "
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
