"""The report of a finished run: model, loss curve, mistakes, next steps.

The code also works for other kinds of examples: mistakes are drawn if the inputs are images, and
printed as rows of numbers otherwise.
"""

from pathlib import Path

import numpy as np

import toile
import toile.numpy as jnp
from toile import random
from toile.metrics import media
from toile.training import terminal
from toile.training.curves import history
from toile.training.report import Report

from . import input_pipeline, train

__all__ = ["history", "show"]


def predictions(state, loader):
    """Return the inputs, labels and logits of a whole data set."""
    found = []
    for batch in loader:
        _, logits = train.eval_step(state, train.Metrics.empty(), batch)
        label = "label" if "label" in batch else "target"
        inputs = next(x for name, x in batch.items() if name not in (label, "mask"))
        real = batch["mask"]
        found.append((inputs[real], batch[label][real], np.asarray(logits)[real]))
    return tuple(map(np.concatenate, zip(*found)))


def worst_mistakes(inputs, labels, logits, count: int = 6):
    """Return the most confident mistakes, and a title for each with its label and prediction."""
    chances = np.asarray(toile.nn.softmax(jnp.asarray(logits), axis=-1))
    guesses = chances.argmax(axis=-1)
    wrong = np.flatnonzero(guesses != labels)
    worst = wrong[np.argsort(-chances[wrong, guesses[wrong]], kind="stable")][:count]
    titles = [
        f"{labels[i]}, mistaken for {guesses[i]} ({chances[i, guesses[i]]:.0%})" for i in worst
    ]
    return inputs[worst], titles


def drawn(images, titles, per_row: int = 3) -> str:
    """Draw digits with characters, three in a row, with their titles."""
    blocks = [
        f"{title}\n{terminal.picture(image[2:-2, 2:-2, 0])}"
        for image, title in zip(images, titles)
    ]
    rows = [blocks[i : i + per_row] for i in range(0, len(blocks), per_row)]
    return "\n".join(terminal.side_by_side(row, width=24) for row in rows)


def listed(inputs, titles, most: int = 8) -> str:
    """List the first numbers of each input, with its title."""
    lines = []
    for x, title in zip(inputs.reshape(len(inputs), -1), titles):
        numbers = " ".join(f"{value:.3g}" for value in x[:most].tolist())
        lines.append(f"  {title}: {numbers}{' ...' if len(x) > most else ''}")
    return "\n".join(lines)


def show_mistakes(page, folder, inputs, titles) -> None:
    """Show the most confident mistakes, as pictures (also in mistakes.png) or rows of numbers."""
    if not titles:
        return
    if inputs.ndim != 4 or inputs.shape[-1] > 4 or min(inputs.shape[1:3]) < 5:
        page.text("most confident mistakes", listed(inputs, titles))
        return
    row = np.concatenate([np.pad(image, ((2, 2), (2, 2), (0, 0))) for image in inputs], axis=1)
    large = np.kron(media.to_bytes(row), np.ones((4, 4, 1), np.uint8))
    (folder / "mistakes.png").write_bytes(media.png(large))
    page.figure("most confident mistakes", row, "; ".join(titles))
    print(f"\nmost confident mistakes ({folder / 'mistakes.png'}):\n\n{drawn(inputs, titles)}")


def show(config, workdir, state) -> float:
    """Print the report, write report.html, and return the accuracy on the held-out digits."""
    _, held_out = input_pipeline.loaders(config, random.key(0))
    inputs, labels, logits = predictions(state, held_out)
    accuracy = float(np.mean(logits.argmax(axis=-1) == labels))
    page = Report.of(workdir, config, title="MNIST", echo=True)
    page.layers(train.create_model(config), random.key(0), inputs[:1])
    page.curve("train_loss", "training loss by step", log=True)
    show_mistakes(page, Path(workdir), *worst_mistakes(inputs, labels, logits))
    page.text("", f"\naccuracy on {len(labels)} held-out digits: {accuracy:.1%}")
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(workdir=workdir, more=config.num_epochs + 5, package=__package__))
    return accuracy


NEXT = """
what to try next
  five more epochs        python -m {package}.main --workdir={workdir} --config.num_epochs={more}
  another seed            python -m {package}.main --workdir=runs/another --config.seed=1
  all 70,000 digits       python -m {package}.main --workdir=runs/full --config.dataset=tfds
                          (after pip install 'toile[datasets]')
  watch the training      tensorboard --logdir={workdir}
  make it yours           cp -r examples/mnist mine, edit mine/train.py, python -m mine.main
"""
