"""The report of a finished run: model, curves, mistakes, baselines, next steps."""

from pathlib import Path

import numpy as np

import toile
import toile.numpy as jnp
from toile import random
from toile.training.report import Report

from . import input_pipeline, train


def naive_bayes(train_set, held_out, vocabulary: int) -> float:
    """Return the accuracy of naive Bayes, which treats the words of a sentence as independent."""

    def present(tokens):
        found = np.zeros((len(tokens), vocabulary), bool)
        found[np.arange(len(tokens))[:, None], tokens] = True
        found[:, 0] = False  # padding
        return found

    words, labels = present(train_set["tokens"]), train_set["label"]
    classes = [words[labels == c] for c in (0, 1)]
    chances = np.array([(found.sum(axis=0) + 1) / (len(found) + 2) for found in classes])
    prior = np.log(np.bincount(labels, minlength=2) / len(labels))
    scores = prior + present(held_out["tokens"]) @ np.log(chances).T
    return float((scores.argmax(axis=1) == held_out["label"]).mean())


def predictions(state, loader):
    """Return the tokens, labels and probabilities of a whole data set."""
    tokens, labels, chances = [], [], []
    for batch in loader:
        _, logits = train.eval_step(state, batch)
        real = batch["mask"]
        tokens.append(batch["tokens"][real])
        labels.append(batch["label"][real])
        chances.append(np.asarray(toile.nn.softmax(logits))[real])
    return tuple(map(np.concatenate, (tokens, labels, chances)))


def mistakes_as_text(vocabulary, tokens, labels, chances, count: int = 6) -> list[str]:
    """List the most confident mistakes."""
    guesses = chances.argmax(axis=-1)
    wrong = np.flatnonzero(guesses != labels)
    worst = wrong[np.argsort(-chances[wrong, guesses[wrong]], kind="stable")][:count]
    names = ("blame", "praise")
    return [
        f"  {names[labels[i]]}, mistaken for {names[guesses[i]]} ({chances[i, guesses[i]]:.0%}): "
        + " ".join(vocabulary.words[t] for t in tokens[i] if t)
        for i in worst
    ]


def show(config, workdir, state) -> float:
    """Print the report, and write report.html and curve.png.

    Returns the accuracy on the held-out sentences.
    """
    vocabulary, train_set, held_out_set = input_pipeline.arrays(config)
    _, _, held_out = input_pipeline.loaders(config, random.key(0))
    tokens, labels, chances = predictions(state, held_out)
    accuracy = float((chances.argmax(axis=-1) == labels).mean())
    model = train.create_model(config, len(vocabulary))
    page = Report.of(workdir, config, title="Text classification", echo=True)
    page.layers(model, random.key(0), jnp.asarray(tokens[:1]), depth=1)
    page.curve("train_loss", "training loss by step", log=True)
    right = {"train": "train_accuracy", "held out": "eval_accuracy"}
    panels = {"training loss": {"train": "train_loss"}, "accuracy": right}
    page.picture(Path(workdir) / "curve.png", panels)

    mistakes = mistakes_as_text(vocabulary, tokens, labels, chances)
    page.text("most confident mistakes", "\n".join(mistakes) or "  none")
    common = np.bincount(train_set["label"]).argmax()
    bayes = naive_bayes(train_set, held_out_set, len(vocabulary))
    page.text("", f"\naccuracy on {len(labels)} held-out sentences: {accuracy:.2%}\n"
                  f"  naive Bayes {bayes:.2%}, "
                  f"the more common label {(labels == common).mean():.2%}")  # fmt: skip
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return accuracy


NEXT = """
what to try next
  ignore the word order   python -m {package}.main --workdir=runs/bag --config.model=bag
  real film reviews       python -m {package}.main --workdir=runs/sst2 \\
                              --config=examples/text_classification/configs/default.py
  watch the training      tensorboard --logdir={workdir}
  make it yours           cp -r examples/text_classification mine, edit mine/train.py,
                          python -m mine.main
"""
