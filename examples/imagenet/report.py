"""What a finished run shows: the model, the curves, accuracies, what is next."""

import sys
from pathlib import Path

import toile.numpy as jnp
from toile import random
from toile.training import checkpoints, curves, terminal

from . import input_pipeline, train


def show(config, workdir, state) -> float:
    """Print the report and write curve.png; the accuracy on held-out images."""
    _, held_out = input_pipeline.loaders(config, random.key(0))
    result = train.evaluate(state, held_out)
    style = {"width": 100, "force_terminal": sys.stdout.isatty()}  # no colours in a file
    image = jnp.zeros((1, config.image_size, config.image_size, 3))
    model = train.create_model(config)
    print(model.tabulate(random.key(0), image, train=False, depth=1, console_kwargs=style))

    loss = curves.history(workdir, "train_loss")
    print(terminal.curve(list(loss), list(loss.values()), log=True, title="training loss by step"))
    right = {part: curves.history(workdir, f"{part}_accuracy") for part in ("train", "eval")}
    panels = {"loss with smoothed labels": {"train": loss}}
    panels["accuracy"] = {"train": right["train"], "held out": right["eval"]}
    curves.picture(Path(workdir) / "curve.png", panels)

    speed = list(curves.history(workdir, "images_per_second").values())
    if speed:
        print(f"\n{speed[-1]:.1f} images per second, evaluations and compilation included")
    print(f"accuracy on {held_out.examples} held-out images: {result['accuracy']:.2%}, "
          f"among the first five {result['top5']:.2%}")  # fmt: skip
    print(f"checkpoint: {checkpoints.latest_checkpoint(workdir)}")
    print(NEXT.format(package=__package__, workdir=workdir))
    return result["accuracy"]


NEXT = """
what to try next
  ten kinds of photographs    tfds build imagenette --file_format=array_record, then
                              python -m {package}.main --workdir=runs/imagenette \\
                                  --config.dataset=imagenette
  ImageNet itself             python -m {package}.main --workdir=runs/imagenet_full \\
                                  --config=examples/imagenet/configs/default.py
  watch it learn              tensorboard --logdir={workdir}
  make it yours               cp -r examples/imagenet mine, edit mine/train.py, python -m mine.main
"""
