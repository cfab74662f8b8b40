"""The report of a finished run: model, curves, results by question or member, next steps."""

from pathlib import Path

import numpy as np

from toile import random
from toile.training.report import Report

from . import input_pipeline, karate, molecules, train


def predictions(state, loader):
    """Return the labels and logits of a whole data set."""
    found = [(batch, train.eval_step(state, batch)[1]) for batch in loader]
    labels = [batch["labels"][batch["mask"]] for batch, _ in found]
    scores = [np.asarray(logits)[batch["mask"][0]] for batch, logits in found]
    return np.concatenate(labels), np.concatenate(scores)


def karate_as_text(labels, scores) -> list[str]:
    """List the members that the network assigns to the wrong club."""
    guesses = scores.argmax(axis=1)
    wrong = np.flatnonzero(guesses != labels)
    names = ("the instructor's", "the president's")
    lines = [f"  member {i} joined {names[labels[i]]} club, not {names[guesses[i]]}" for i in wrong]
    return [f"{len(labels) - len(wrong)} of {len(labels)} members right, from the labels of "
            f"{karate.INSTRUCTOR} and {karate.PRESIDENT} alone", *lines]  # fmt: skip


def molecules_as_text(labels, scores, names) -> list[str]:
    """List the average precision and, for comparison, the share of positives for each question."""
    rates = np.nanmean(labels, axis=0)
    found = train.average_precisions(labels, scores)
    lines = [f"  {n:20} {a:.3f}   ({r:.3f})" for n, a, r in zip(names, found, rates)]
    return [
        "average precision (in brackets: of a random order)", *lines,
        f"mean over questions: mAP {np.nanmean(found):.4f} ({np.mean(rates):.4f})",
    ]  # fmt: skip


def show(config, workdir, state) -> float:
    """Print the report, and write report.html and curve.png.

    Returns the accuracy, or the mean average precision.
    """
    task, _, held_out = input_pipeline.loaders(config, random.key(0))
    labels, scores = predictions(state, held_out)
    model = train.create_model(config, task)
    page = Report.of(workdir, config, title="Graph network", echo=True)
    graph = train.own(next(iter(held_out)))["graph"]
    page.layers(model, random.key(0), graph, depth=1, width=120)
    page.curve("train_loss", "training loss by step", log=True)
    name = "map" if task.of_graphs else "accuracy"
    panels = {"training loss": {"train": "train_loss"}}
    panels[f"held-out {name}"] = {"held out": f"eval_{name}"}
    page.picture(Path(workdir) / "curve.png", panels)

    if task.of_graphs:
        questions = [f"assay {i}" for i in range(task.outputs)]
        if config.dataset == "generated":
            questions = list(molecules.QUESTIONS)
        lines = molecules_as_text(labels, scores, questions)
    else:
        lines = karate_as_text(labels, scores)
    page.text("", "\n" + "\n".join(lines))
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
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
