"""The report of a finished run: model, curves, confused classes, next steps."""

from pathlib import Path

import numpy as np

import toile.numpy as jnp
from toile import random
from toile.metrics import media
from toile.training import images
from toile.training.report import Report

from . import input_pipeline, train

CIFAR = "airplane automobile bird cat deer dog frog horse ship truck".split()


def predictions(state, loader):
    """Return the images, labels and predictions of a whole data set."""
    pictures, labels, guesses = [], [], []
    for batch in loader:
        _, logits = train.eval_step(state, batch)
        real = batch["mask"]
        pictures.append(batch["image"][real])
        labels.append(batch["label"][real])
        guesses.append(np.asarray(logits).argmax(-1)[real])
    return tuple(map(np.concatenate, (pictures, labels, guesses)))


def by_kind(names, labels, guesses) -> str:
    """Return the accuracy of each class, and its most frequent wrong prediction."""
    lines = []
    for kind, name in enumerate(names):
        own = guesses[labels == kind]
        wrong = np.bincount(own[own != kind], minlength=len(names))
        often = f"   most often mistaken for {names[wrong.argmax()]}" if wrong.any() else ""
        lines.append(f"  {name:10s} {(own == kind).mean():6.1%}{often}")
    return "\n".join(lines)


def mistakes(pictures, labels, guesses, count: int = 12) -> np.ndarray:
    """Place the first mistakes side by side, in an array of bytes [height, width, 3]."""
    wrong = np.flatnonzero(labels != guesses)[:count]
    pixels = pictures[wrong] * input_pipeline.STD + input_pipeline.MEAN
    row = np.concatenate(np.pad(pixels, ((0, 0), (2, 2), (2, 2), (0, 0))), axis=1)
    return np.clip(row, 0, 255).astype(np.uint8)


def show(config, workdir, state) -> float:
    """Print the report, and write report.html, curve.png and mistakes.png.

    Returns the accuracy on held-out images.
    """
    _, held_out = input_pipeline.loaders(config, random.key(0))
    pictures, labels, guesses = predictions(state, held_out)
    accuracy = float((guesses == labels).mean())
    page = Report.of(workdir, config, title="Image classification", echo=True)
    model = train.create_model(config)
    page.layers(model, random.key(0), jnp.asarray(pictures[:1]), depth=1)
    page.curve("train_loss", "training loss by step", log=True)
    right = {"training, with mixup": "train_accuracy", "held out": "eval_accuracy"}
    panels = {"training loss": {"train": "train_loss"}, "accuracy": right}
    page.picture(Path(workdir) / "curve.png", panels)

    names = list(images.SHAPES) if config.dataset == "shapes" else CIFAR
    page.text("accuracy by class", by_kind(names, labels, guesses))
    if accuracy < 1:
        row = mistakes(pictures, labels, guesses)
        page.figure("mistakes", row)
        large = np.kron(row, np.ones((3, 3, 1), np.uint8))
        (Path(workdir) / "mistakes.png").write_bytes(media.png(large))
        print(f"mistakes: {Path(workdir) / 'mistakes.png'}")
    page.text("", f"\naccuracy on {len(labels)} held-out images: {accuracy:.2%}")
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return accuracy


NEXT = """
what to try next
  a WideResNet            python -m {package}.main --workdir=runs/wide \\
                              --config.model=wide_resnet --config.width=2
  CIFAR-10 itself         python -m {package}.main --workdir=runs/cifar10_full \\
                              --config=examples/cifar10/configs/default.py
  watch the training      tensorboard --logdir={workdir}
  make it yours           cp -r examples/cifar10 mine, edit mine/train.py, python -m mine.main
"""
