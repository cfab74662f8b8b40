"""What a finished run shows: the model, the curves, gaps and what it fills in, what is next."""

import sys
from pathlib import Path

import numpy as np

import toile.numpy as jnp
from toile import random
from toile.training import checkpoints, curves, terminal
from toile.training.text import END

from . import input_pipeline, models, train


def readable(tokens, ids, vocabulary: int) -> str:
    """Tokens as text, sentinels as numbers in angle brackets."""
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
    """Texts with gaps, what was there, and the likeliest tokens, each after the right ones."""
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
    """Print the report and write curve.png; the loss per held-out token."""
    _, held_out = input_pipeline.loaders(recipe, config.vocabulary, random.key(0))
    result = train.evaluate(state, held_out)
    style = {"width": 100, "force_terminal": sys.stdout.isatty()}  # no colours in a file
    row = jnp.ones((1, 8), jnp.int32)
    print(models.T5(config).tabulate(random.key(0), row, row, depth=1, console_kwargs=style))

    loss = curves.history(workdir, "train_loss")
    print(terminal.curve(list(loss), list(loss.values()), log=True, title="training loss by step"))
    panels = {
        title: {
            label: curves.history(workdir, f"{part}_{name}")
            for label, part in (("train", "train"), ("held out", "eval"))
        }
        for title, name in (("span-corruption loss", "loss"), ("accuracy of tokens", "accuracy"))
    }
    curves.picture(Path(workdir) / "curve.png", panels)

    if recipe.dataset != "seqio":
        print("\n" + "\n".join(filled_in(recipe, config, state, held_out)))
    print(f"loss per held-out token: {result['loss']:.4f}, accuracy {result['accuracy']:.2%}")
    print(f"checkpoint: {checkpoints.latest_checkpoint(workdir)}")
    print(NEXT.format(package=__package__, workdir=workdir))
    return result["loss"]


NEXT = """
what to try next
  longer gaps             python -m {package}.main --workdir=runs/gaps --gin=Recipe.mean_span=20.0
  T5 1.1 base on C4       python -m {package}.main --workdir=runs/t5_base \\
                              --config=examples/t5/configs/default.py
  watch it learn          tensorboard --logdir={workdir}
  make it yours           cp -r examples/t5 mine, edit mine/train.py, python -m mine.main
"""
