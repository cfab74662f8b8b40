"""The report of a finished run: model, curves, results by tag, baselines, next steps."""

from pathlib import Path

import numpy as np

from toile import random
from toile.training.report import Report

from . import input_pipeline, train


def predictions(state, loader):
    """Return words, labels and predicted tags of all held-out tokens that have a tag."""
    words, labels, guesses = [], [], []
    for batch in loader:
        _, logits = train.eval_step(state, batch)
        there = batch["labels"] >= 0
        words.append(batch["words"][there])
        labels.append(batch["labels"][there])
        guesses.append(np.asarray(logits.argmax(axis=-1))[there])
    return tuple(map(np.concatenate, (words, labels, guesses)))


def baselines(train_set, words, labels) -> dict[str, float]:
    """Return the accuracy of the most common tag, and of the most common tag of each word."""
    there = train_set["labels"] >= 0
    seen, tags = train_set["words"][there][:, 0], train_set["labels"][there]
    counts = np.zeros((seen.max() + 1, max(tags.max(), labels.max()) + 1), int)
    np.add.at(counts, (seen, tags), 1)
    most_common = counts.sum(axis=0).argmax()
    by_word = np.where(counts.any(axis=1), counts.argmax(axis=1), most_common)
    return {
        "the most common tag": float((labels == most_common).mean()),
        "the most common tag of each word": float((labels == by_word[words[:, 0]]).mean()),
    }


def by_tag(vocabulary, labels, guesses) -> list[str]:
    """List the accuracy of each tag, and its most frequent wrong prediction."""
    lines = []
    for number, tag in enumerate(vocabulary.tags):
        mine = labels == number
        if mine.any():
            found = (guesses[mine] == number).mean()
            wrong = np.bincount(guesses[mine & (guesses != number)], minlength=1)
            often = vocabulary.tags[wrong.argmax()]
            mistaken = f"   most often mistaken for {often}" if wrong.any() else ""
            lines.append(f"  {tag:18}{mine.sum():7}   {found:.1%}{mistaken}")
    return lines


def show(config, workdir, state) -> float:
    """Print the report, and write report.html and curve.png.

    Returns the accuracy on the held-out tokens.
    """
    vocabulary, train_set, _ = input_pipeline.arrays(config)
    _, _, held_out = input_pipeline.loaders(config, random.key(0))
    words, labels, guesses = predictions(state, held_out)
    accuracy = float((guesses == labels).mean())
    model = train.create_model(config, vocabulary)
    page = Report.of(workdir, config, title="Sequence tagging", echo=True)
    page.layers(model, random.key(0), train_set["words"][:1], depth=1, width=120)
    page.curve("train_loss", "training loss by step", log=True)
    right = {"train": "train_accuracy", "held out": "eval_accuracy"}
    panels = {"training loss": {"train": "train_loss"}, "accuracy": right}
    page.picture(Path(workdir) / "curve.png", panels)

    lines = by_tag(vocabulary, labels, guesses)
    page.text("tokens and accuracy by tag", "\n".join(lines))
    lines = [f"\naccuracy on {len(labels)} held-out tokens: {accuracy:.2%}"]
    known = baselines(train_set, words, labels)
    page.text("", "\n".join(lines + [f"  {name}: {value:.2%}" for name, value in known.items()]))
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return accuracy


NEXT = """
what to try next
  a transformer           python -m {package}.main --workdir=runs/transformer \\
                              --config.model=transformer
  a treebank              git clone https://github.com/UniversalDependencies/UD_English-EWT
                          python -m {package}.main --workdir=runs/treebank \\
                              --config=examples/sequence_tagging/configs/default.py
  make it yours           cp -r examples/sequence_tagging mine, edit mine/train.py,
                          python -m mine.main
"""
