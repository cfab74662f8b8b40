"""The report of a finished run: model, curves, predictions for gaps, next steps."""

from pathlib import Path

import numpy as np

import toile.numpy as jnp
from toile import random
from toile.training.report import Report
from toile.training.text import END

from . import input_pipeline, models, train


def readable(tokens, ids, vocabulary: int) -> str:
    """Convert tokens to text, with sentinels as numbers in angle brackets."""
    out: list[str] = []
    part: list[int] = []
    for t in [*ids, END]:
        is_sentinel = tokens.size <= t < vocabulary
        if is_sentinel or t == END:
            out.append(tokens.decode(part))
            part = []
        if is_sentinel:
            out.append(f"<{vocabulary - 1 - t}>")
        elif t == END:
            break
        else:
            part.append(int(t))
    return "".join(out).replace("\n", "⏎")


def filled_in(recipe, config, state, loader, count: int = 3) -> list[str]:
    """List texts with gaps, the missing tokens, and the predictions (with teacher forcing)."""
    batch, tokens = next(iter(loader)), input_pipeline.tokenizer(recipe)
    _, logits = train.eval_step(state, batch)
    guesses = np.asarray(logits).argmax(-1)
    guesses = np.where(batch["targets"] >= tokens.size, batch["targets"], guesses)
    lines = []
    for i in range(min(count, int(batch["mask"].sum()))):
        rows = (batch["inputs"][i], batch["targets"][i], guesses[i])
        text, truth, guess = (readable(tokens, row, config.vocabulary) for row in rows)
        lines += [f"  text    {text}", f"  gaps    {truth}", f"  guess   {guess}", ""]
    return lines


def show(recipe, config, workdir, state) -> float:
    """Print the report, and write report.html and curve.png.

    Returns the loss per held-out token.
    """
    _, held_out = input_pipeline.loaders(recipe, config.vocabulary, random.key(0))
    result = train.evaluate(state, held_out)
    page = Report.of(workdir, recipe, title="T5", echo=True)
    page.config(config)
    row = jnp.ones((1, 8), jnp.int32)
    page.layers(models.T5(config), random.key(0), row, row, depth=1)
    page.curve("train_loss", "training loss by step", log=True)
    titles = {"span-corruption loss": "loss", "token accuracy": "accuracy"}
    page.picture(Path(workdir) / "curve.png", {
        title: {"train": f"train_{name}", "held out": f"eval_{name}"}
        for title, name in titles.items()
    })  # fmt: skip

    if recipe.dataset != "seqio":
        page.text("", "\n" + "\n".join(filled_in(recipe, config, state, held_out)))
    reached = f"{result['loss']:.4f}, accuracy {result['accuracy']:.2%}"
    page.text("", f"loss per held-out token: {reached}")
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return result["loss"]


NEXT = """
what to try next
  longer gaps             python -m {package}.main --workdir=runs/gaps --gin=Recipe.mean_span=20.0
  T5 1.1 base on C4       python -m {package}.main --workdir=runs/t5_base \\
                              --config=examples/t5/configs/default.py
  watch the training      tensorboard --logdir={workdir}
  make it yours           cp -r examples/t5 mine, edit mine/train.py, python -m mine.main
"""
