"""What a run shows at its end: the model, the loss curve, mistakes, and what to try next."""

import json
import sys
from pathlib import Path

import numpy as np

import toile
import toile.numpy as jnp
from toile import random
from toile.metrics import media
from toile.training import checkpoints, terminal

from . import input_pipeline, train


def history(workdir, name: str) -> dict[int, float]:
    """The values of a metric by step; where a step was repeated after a kill, the last one."""
    found = {}
    for line in (Path(workdir) / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if name in entry:
            found[entry["step"]] = float(entry[name])
    return found


def predictions(state, loader):
    """Images, labels and logits of a whole data set."""
    images, labels, logits = [], [], []
    for batch in loader:
        _, out = train.eval_step(state, train.Metrics.empty(), batch)
        real = batch["mask"]
        images.append(batch["image"][real])
        labels.append(batch["label"][real])
        logits.append(np.asarray(out)[real])
    return tuple(map(np.concatenate, (images, labels, logits)))


def worst_mistakes(images, labels, logits, count: int = 6):
    """The misclassified digits the network was surest of: image, label, guess, its probability."""
    chances = np.asarray(toile.nn.softmax(jnp.asarray(logits), axis=-1))
    guesses = chances.argmax(axis=-1)
    wrong = np.flatnonzero(guesses != labels)
    surest = wrong[np.argsort(-chances[wrong, guesses[wrong]], kind="stable")][:count]
    return [(images[i, ..., 0], labels[i], guesses[i], chances[i, guesses[i]]) for i in surest]


def mistakes_as_text(mistakes, per_row: int = 3) -> str:
    """Digits in blocks of characters, three in a row, with what they are and were taken for."""
    blocks = [
        f"{label}, taken for {guess} ({chance:.0%})\n{terminal.picture(image[2:-2, 2:-2])}"
        for image, label, guess, chance in mistakes
    ]
    rows = [blocks[i : i + per_row] for i in range(0, len(blocks), per_row)]
    return "\n".join(terminal.side_by_side(row, width=24) for row in rows)


def write_picture(path, mistakes, scale: int = 4) -> None:
    """The digits side by side as a PNG, every pixel `scale` times as large."""
    row = np.concatenate([np.pad(image, 2) for image, *_ in mistakes], axis=1)
    large = np.kron(media.to_bytes(row), np.ones((scale, scale), np.uint8))
    Path(path).write_bytes(media.png(large[..., None]))


def show(config, workdir, state) -> float:
    """Print the report; the accuracy on the held-out digits."""
    _, held_out = input_pipeline.loaders(config, random.key(0))
    images, labels, logits = predictions(state, held_out)
    accuracy = float(np.mean(logits.argmax(axis=-1) == labels))
    model = train.create_model(config)
    style = {"width": 100, "force_terminal": sys.stdout.isatty()}  # no colours in a file
    print(model.tabulate(random.key(0), images[:1], console_kwargs=style))
    loss = history(workdir, "train_loss")
    print(terminal.curve(list(loss), list(loss.values()), log=True, title="training loss by step"))

    mistakes = worst_mistakes(images, labels, logits)
    if mistakes:
        picture = Path(workdir) / "mistakes.png"
        write_picture(picture, mistakes)
        print(f"\nits surest mistakes ({picture}):\n\n{mistakes_as_text(mistakes)}")
    print(f"\naccuracy on {len(labels)} held-out digits: {accuracy:.1%}")
    print(f"checkpoint: {checkpoints.latest_checkpoint(workdir)}")
    print(NEXT.format(workdir=workdir, more=config.num_epochs + 5, package=__package__))
    return accuracy


NEXT = """
what to try next
  go on for five epochs   python -m {package}.main --workdir={workdir} --config.num_epochs={more}
  start anew              python -m {package}.main --workdir=runs/another --config.seed=1
  all 70,000 digits       python -m {package}.main --workdir=runs/full --config.dataset=tfds
                          (after pip install 'toile[datasets]')
  watch it learn          tensorboard --logdir={workdir}
  make it yours           cp -r examples/mnist mine, edit mine/train.py, python -m mine.main
"""
