"""Fine-tune a language model in one of several ways. Edit this file to change the training.

A recipe (`config.method`) consists of parameters, of which some are trained, and of an objective.
The base model comes from a Hugging Face folder; without one, a small base model is trained first.
"""

import copy
import functools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import toile
import toile.numpy as jnp
from toile import finetuning, optim, random, training
from toile import linen as nn
from toile.interop import huggingface
from toile.metrics import writers
from toile.quantization import quantize, size_of
from toile.training import checkpoints
from toile.training.loader import Loader
from toile.training.train_state import TrainState

from . import input_pipeline, models

METHODS = ("full", "lora", "qlora", "prompt", "probe", "dpo")


# ---- objectives: functions of parameters and a batch, which return a loss and metrics


def token_objective(apply_fn, params, batch):
    """The mean cross-entropy of the tokens that are trained, and the accuracy."""
    logits = apply_fn({"params": params}, batch["tokens"], batch["segments"], batch["positions"])
    loss, labels = finetuning.token_loss(logits, batch["labels"]), batch["labels"][:, 1:]
    right = (logits[:, :-1].argmax(-1) == labels) & (labels >= 0)
    count = jnp.sum(labels >= 0)
    return loss, {"loss": loss * count, "accuracy": right.sum(), "count": count}


def probe_objective(apply_fn, params, batch):
    """The cross-entropy of the labels of windows, and the accuracy."""
    logits, labels = apply_fn({"params": params}, batch["features"]), batch["labels"]
    losses = optim.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = logits.argmax(-1) == labels
    return losses.mean(), {"loss": losses.sum(), "accuracy": right.sum(), "count": len(labels)}


def answer_scores(apply_fn, params, rows):
    """The log-probabilities of answers, summed over their tokens."""
    logits = apply_fn({"params": params}, rows["tokens"], rows["segments"], rows["positions"])
    return finetuning.log_probs(logits, rows["labels"]).sum(axis=1)


def preference_objective(apply_fn, params, batch, beta):
    """The loss of DPO, and how often the chosen answer is more likely than the other one."""
    own = [answer_scores(apply_fn, params, batch[name]) for name in ("chosen", "rejected")]
    losses = finetuning.dpo_loss(*own, *batch["reference"], beta=beta)
    right = own[0] > own[1]
    return losses.mean(), {"loss": losses.sum(), "accuracy": right.sum(), "count": len(losses)}


# ---- the base model


def base_model(config, workdir):
    """Return the configuration and parameters of the base model; train it if there is none."""
    folder = Path(config.folder or config.base_folder)
    if not config.folder and not (folder / "config.json").exists():
        pretrain(config, folder, workdir)
    return models.load(folder, dtype=config.dtype or None)


def pretrain(config, folder, workdir):
    """Train a small model on Python's help topics, and save it as a Hugging Face folder."""
    about = {"model_type": "llama", "vocab_size": 258, "architectures": ["LlamaForCausalLM"],
             "tie_word_embeddings": True, "max_position_embeddings": 2048, **config.base_model}
    c = copy.deepcopy(config)
    c.dataset, c.method, c.num_steps = "topics", "full", config.base_steps
    c.learning_rate, c.accumulate, c.length = config.base_learning_rate, 1, config.base_length
    c.batch_size, c.pack, c.remat = config.base_batch_size, True, False
    print(f"training a base model on help topics, which is kept in {folder}")
    params = models.initial(about, random.key(config.seed))
    state, _ = fit(c, Path(workdir) / "base", *recipe(c, about, params))
    folder.mkdir(parents=True, exist_ok=True)
    huggingface.save(folder, {"params": state.params}, about, models.table(about))


# ---- recipes


def create_optimizer(config):
    """AdamW with warmup and cosine decay; gradients of `config.accumulate` batches are averaged."""
    updates = math.ceil(config.num_steps / config.accumulate)
    rate = optim.warmup_cosine_decay_schedule(
        0.0, config.learning_rate, min(config.warmup_steps, updates - 1), updates
    )
    tx = optim.adamw(rate, weight_decay=config.weight_decay, mask=decays)
    tx = optim.chain(optim.clip_by_global_norm(1.0), tx)
    if config.accumulate == 1:
        return tx
    return optim.MultiSteps(tx, config.accumulate).gradient_transformation()


def decays(params):
    """Weight decay applies to parameters with two or more axes."""
    return toile.tree.map(lambda x: x.ndim > 1, params)


def recipe(config, about, params):
    """Return the state, the objective, and the data for training and for evaluation."""
    if config.method not in METHODS:
        raise ValueError(f"config.method: needed one of {METHODS}, got {config.method!r}")
    model: Any = models.Decoder(models.Config.from_dict(about), remat=config.remat)
    key, select = random.key(config.seed + 1), list(config.select)
    trainable: Any = None
    objective: Any = token_objective
    data: Sequence
    if config.method in ("lora", "qlora", "dpo"):
        if config.method == "qlora":
            params = quantize(params, select, bits=config.bits, group=config.group)
        params = finetuning.lora(params, select, rank=config.rank, alpha=config.alpha, key=key)
        trainable = finetuning.adapter_mask
    if config.method == "prompt":
        own = model.config
        model = finetuning.SoftPrompt(
            model, vocabulary=own.vocabulary, features=own.features, length=config.prompt_length
        )
        words = random.randint(key, (config.prompt_length,), 0, own.vocabulary)
        prompt = params["embedding"]["embedding"][words]  # starts at embeddings of real tokens
        params, trainable = {"model": params, "prompt": prompt}, "prompt"
    if config.method == "probe":
        data = [with_features(model, params, rows) for rows in input_pipeline.windows(config)]
        model, objective = nn.Dense(2), probe_objective
        params = model.init(key, data[0]["features"][:1])["params"]
    elif config.method == "dpo":
        objective = functools.partial(preference_objective, beta=config.beta)
        data = [with_reference(model, params, rows) for rows in input_pipeline.pairs(config)]
    else:
        first = about["vocab_size"]
        prompt = range(first, first + config.prompt_length) if config.method == "prompt" else ()
        data = input_pipeline.packed(config, prompt)
    state = TrainState.create(
        apply_fn=model.apply, params=params, tx=create_optimizer(config), trainable=trainable
    )
    return state, objective, *data


def with_features(model, params, rows):
    """Replace windows by the mean features of their tokens, which are computed once."""

    @toile.jit
    def features(rows):
        x = model.apply(
            {"params": params}, rows["tokens"], rows["segments"], rows["positions"], features=True
        )
        return x.mean(axis=1).astype(jnp.float32)

    found = [features(batch) for batch in Loader(rows, 64, last="keep")]
    return {"features": jnp.concatenate(found), "labels": rows["labels"]}


def with_reference(model, params, rows):
    """Add the log-probabilities of the answers in the model without adapters."""
    base = finetuning.without_adapters(params)
    scores = toile.jit(lambda some: answer_scores(model.apply, base, some))
    found = [
        jnp.concatenate([scores(batch) for batch in Loader(rows[name], 64, last="keep")])
        for name in ("chosen", "rejected")
    ]
    return {**rows, "reference": found}


# ---- training


@functools.partial(toile.jit, static_argnames="objective")
def train_step(state, batch, objective):
    """Return the state after one batch, and the loss."""

    def loss_fn(params):
        return objective(state.apply_fn, params, batch)[0]

    loss, grads = training.value_and_grad(loss_fn, state)
    return state.apply_gradients(grads=grads), loss


@functools.partial(toile.jit, static_argnames="objective")
def eval_step(state, batch, objective):
    """Return the metrics of a batch, summed over its examples."""
    return objective(state.apply_fn, state.params, batch)[1]


def evaluate(config, state, objective, data) -> dict[str, float]:
    """Return the mean metrics of held-out data, as far as it fills batches."""
    size = min(config.batch_size, len(toile.tree.leaves(data)[0]))
    rows = [eval_step(state, batch, objective=objective) for batch in Loader(data, size)]
    total = toile.tree.map(lambda *xs: float(sum(xs)), *rows)
    return {name: total[name] / total["count"] for name in ("loss", "accuracy")}


def fit(config, workdir, state, objective, data, held_out):
    """Train for `config.num_steps` batches; return the state, and the metrics before and after."""
    before = evaluate(config, state, objective, held_out)
    loader = Loader(data, config.batch_size, key=random.key(config.seed))
    in_all = sum(x.size for x in toile.tree.leaves(state.params))
    trained = sum(x.size for x in toile.tree.leaves(state.opt_state) if x.ndim) // (
        3 if config.accumulate > 1 else 2)  # moments, and accumulated gradients
    size = size_of(state.params)
    print(f"{config.method}: {trained:,} trained parameters of {in_all:,} ({size:,} bytes); "
          f"held out before: {shown(before)}", flush=True)  # fmt: skip
    began, step = time.perf_counter(), 0
    with writers.create_default_writer(str(workdir), console=False) as writer:
        for batch in loader.forever():
            state, loss = train_step(state, batch, objective=objective)
            step += 1
            if step % config.log_every_steps == 0:
                writer.write_scalars(step, {"train_loss": float(loss)})
            if step == config.num_steps:
                break
        after = evaluate(config, state, objective, held_out)
        writer.write_scalars(step, {f"eval_{name}": value for name, value in after.items()})
    print(f"{config.method}: held out after {step} steps: {shown(after)}   "
          f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
    return state, (before, after)


def shown(metrics: dict[str, float]) -> str:
    """Format metrics."""
    return ", ".join(f"{name} {value:.3f}" for name, value in metrics.items())


def save(config, workdir, about, state):
    """Save the trained parameters: adapters as PEFT files, a whole model, or a checkpoint."""
    folder = Path(workdir) / "result"
    if config.method == "full":
        huggingface.save(folder, {"params": state.params}, about, models.table(about))
    elif config.method in ("lora", "qlora", "dpo"):
        base = config.folder or config.base_folder
        variables = {"params": state.params}
        finetuning.save_peft(folder, variables, models.table(about), base_model=base)
    else:
        part = state.params["prompt"] if config.method == "prompt" else state.params
        checkpoints.save_checkpoint(folder, part, int(state.step), overwrite=True)
    return folder


def train_and_evaluate(config, workdir):
    """Fine-tune a model; return the state, and the metrics before and after."""
    about, params = base_model(config, workdir)
    state, results = fit(config, workdir, *recipe(config, about, params))
    print(f"saved {save(config, workdir, about, state)}")
    return state, results
