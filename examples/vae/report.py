"""The report of a finished run: model, ELBO curve, generated digits, next steps."""

from pathlib import Path

import numpy as np

from toile import random
from toile.metrics import media
from toile.training import terminal
from toile.training.report import Report

from . import input_pipeline, train


def sheet(images, columns: int) -> np.ndarray:
    """Place images [count, height, width] side by side, `columns` in a row, with a thin border."""
    framed = np.pad(np.asarray(images), ((0, 0), (1, 1), (1, 1)), constant_values=0.3)
    count, height, width = framed.shape
    grid = framed.reshape(count // columns, columns, height, width)
    return grid.transpose(0, 2, 1, 3).reshape(-1, columns * width)


def write_sheet(path, images, columns: int) -> None:
    """Write the sheet as a PNG, with every pixel twice as large."""
    large = np.kron(media.to_bytes(sheet(images, columns)), np.ones((2, 2), np.uint8))
    Path(path).write_bytes(media.png(large[..., None]))


def show(config, workdir, state) -> float:
    """Print the report, write report.html, and return the ELBO.

    samples.png, reconstructions.png and curve.png are written too.
    """
    _, held_out = input_pipeline.loaders(config, random.key(0))
    result = train.evaluate(state, held_out)
    batch = next(iter(held_out))
    page = Report.of(workdir, config, title="VAE", echo=True)
    rngs = {"params": random.key(0), "noise": random.key(1)}
    model = train.create_model(config)
    page.layers(model, rngs, batch["image"][:1], depth=1)
    page.curve("train_elbo", "training ELBO by step (nats)")
    folder = Path(workdir)
    lines = {"train": "train_elbo", "held out": "eval_elbo"}
    page.picture(folder / "curve.png", {"ELBO, nats per digit": lines})

    samples = np.asarray(train.generate(state, random.key(2), 64))
    write_sheet(folder / "samples.png", samples, 16)
    page.figure("generated digits", sheet(samples, 16))
    _, again = train.eval_step(state, batch, random.key(0))
    pairs = np.concatenate([batch["image"][:16], np.asarray(again)[:16]])[..., 0]
    write_sheet(folder / "reconstructions.png", pairs, 16)
    page.figure("held-out digits and their reconstructions", sheet(pairs, 16))
    blocks = [terminal.picture(image[2:-2, 2:-2]) for image in samples[:4]]
    print(f"\ngenerated digits ({folder / 'samples.png'}):\n\n"
          f"{terminal.side_by_side(blocks, width=24)}")  # fmt: skip
    page.text("", f"\nELBO of {held_out.examples} held-out digits: {result['elbo']:.2f} nats "
                  f"(reconstruction {result['reconstruction']:.2f}, "
                  f"divergence {result['divergence']:.2f})")  # fmt: skip
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return result["elbo"]


NEXT = """
what to try next
  two latents only        python -m {package}.main --workdir=runs/flat --config.latents=2
  all 50,000 digits       python -m {package}.main --workdir=runs/full \\
                              --config=examples/vae/configs/default.py
  watch the training      tensorboard --logdir={workdir}
  make it yours           cp -r examples/vae mine, edit mine/train.py, python -m mine.main
"""
