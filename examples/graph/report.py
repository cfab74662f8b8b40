"""What a finished run shows: the model, the curves, results by question or by member, what next."""

import sys
from pathlib import Path

import numpy as np

from toile import random
from toile.training import checkpoints, curves, terminal

from . import input_pipeline, karate, molecules, train


def predictions(state, loader):
    """Labels and logits of a whole data set."""
    found = [(batch, train.eval_step(state, batch)[1]) for batch in loader]
    labels = [batch["labels"][batch["mask"]] for batch, _ in found]
    scores = [np.asarray(logits)[batch["mask"][0]] for batch, logits in found]
    return np.concatenate(labels), np.concatenate(scores)


def karate_as_text(labels, scores) -> list[str]:
    """The members who are put into the club they did not join."""
    guesses = scores.argmax(axis=1)
    wrong = np.flatnonzero(guesses != labels)
    names = ("the instructor's", "the president's")
    lines = [f"  member {i} joined {names[labels[i]]} club, not {names[guesses[i]]}" for i in wrong]
    return [f"{len(labels) - len(wrong)} of {len(labels)} members right, from the labels of "
            f"{karate.INSTRUCTOR} and {karate.PRESIDENT} alone", *lines]  # fmt: skip


def molecules_as_text(labels, scores, names) -> list[str]:
    """The average precision by question, beside the share of positives: that of a guess."""
    rates = np.nanmean(labels, axis=0)
    found = train.average_precisions(labels, scores)
    lines = [f"  {n:20} {a:.3f}   ({r:.3f})" for n, a, r in zip(names, found, rates)]
    return [
        "average precision (of a random order)", *lines,
        f"mean over questions: mAP {np.nanmean(found):.4f} ({np.mean(rates):.4f})",
    ]  # fmt: skip


def show(config, workdir, state) -> float:
    """Print the report and write curve.png; the accuracy, or the mean average precision."""
    task, _, held_out = input_pipeline.loaders(config, random.key(0))
    labels, scores = predictions(state, held_out)
    model = train.create_model(config, task)
    style = {"width": 120, "force_terminal": sys.stdout.isatty()}  # no colours in a file
    graph = train.own(next(iter(held_out)))["graph"]
    print(model.tabulate(random.key(0), graph, depth=1, console_kwargs=style))

    loss = curves.history(workdir, "train_loss")
    print(terminal.curve(list(loss), list(loss.values()), log=True, title="training loss by step"))
    name = "map" if task.of_graphs else "accuracy"
    panels = {"training loss": {"train": loss}}
    panels[f"held-out {name}"] = {"held out": curves.history(workdir, f"eval_{name}")}
    curves.picture(Path(workdir) / "curve.png", panels)

    if task.of_graphs:
        questions = [f"assay {i}" for i in range(task.outputs)]
        if config.dataset == "generated":
            questions = list(molecules.QUESTIONS)
        lines = molecules_as_text(labels, scores, questions)
    else:
        lines = karate_as_text(labels, scores)
    print("\n" + "\n".join(lines))
    print(f"checkpoint: {checkpoints.latest_checkpoint(workdir)}")
    print(NEXT.format(package=__package__, workdir=workdir))
    return train.measured(labels, scores)[name]


NEXT = """
what to try next
  attention               python -m {package}.main --workdir=runs/gat --config.layer=gat
  the karate club         python -m {package}.main --workdir=runs/karate \\
                              --config=examples/graph/configs/karate.py
  real molecules          python -m {package}.main --workdir=runs/molpcba \\
                              --config=examples/graph/configs/default.py
  make it yours           cp -r examples/graph mine, edit mine/train.py, python -m mine.main
"""
