"""The report of a finished run: model, curves, accuracies, next steps."""

from pathlib import Path

import toile.numpy as jnp
from toile import random
from toile.training import curves
from toile.training.report import Report

from . import input_pipeline, train


def show(config, workdir, state) -> float:
    """Print the report, and write report.html and curve.png.

    Returns the accuracy on held-out images.
    """
    _, held_out = input_pipeline.loaders(config, random.key(0))
    result = train.evaluate(state, held_out)
    page = Report.of(workdir, config, title="ImageNet", echo=True)
    image = jnp.zeros((1, config.image_size, config.image_size, 3))
    model = train.create_model(config)
    page.layers(model, random.key(0), image, train=False, depth=1)
    page.curve("train_loss", "training loss by step", log=True)
    panels = {"loss with label smoothing": {"train": "train_loss"}}
    panels["accuracy"] = {"train": "train_accuracy", "held out": "eval_accuracy"}
    page.picture(Path(workdir) / "curve.png", panels)

    speed = list(curves.history(workdir, "images_per_second").values())
    if speed:
        page.text("", f"\n{speed[-1]:.1f} images per second, including evaluation and compilation")
    page.text("", f"accuracy on {held_out.examples} held-out images: {result['accuracy']:.2%}, "
                  f"top-5 accuracy {result['top5']:.2%}")  # fmt: skip
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__, workdir=workdir))
    return result["accuracy"]


NEXT = """
what to try next
  ten classes of photographs  tfds build imagenette --file_format=array_record, then
                              python -m {package}.main --workdir=runs/imagenette \\
                                  --config.dataset=imagenette
  ImageNet itself             python -m {package}.main --workdir=runs/imagenet_full \\
                                  --config=examples/imagenet/configs/default.py
  watch the training          tensorboard --logdir={workdir}
  make it yours               cp -r examples/imagenet mine, edit mine/train.py, python -m mine.main
"""
