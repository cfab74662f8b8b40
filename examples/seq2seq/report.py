"""The report of a finished run: model, loss curve, held-out sums, next steps."""

from pathlib import Path

from toile import random
from toile.training.curves import history
from toile.training.report import Report

from . import input_pipeline, models, train

__all__ = ["history", "show"]


def show(config, workdir, state) -> float:
    """Print the report, write report.html, and return the share of held-out sums that are right."""
    _, data_key = random.split(random.key(config.seed))
    task, _, held_out = input_pipeline.loaders(config, data_key)
    result, (batch, written) = train.evaluate(state, held_out)

    model = models.Seq2Seq(config.features)
    page = Report.of(workdir, config, title="Sums", echo=True)
    example = batch["question"][:1], batch["answer"][:1]
    page.layers(model, random.key(0), *example, depth=1, width=120)
    page.curve("train_loss", "training loss by step", log=True)
    lines = train.as_text(task, batch, written, 12)
    page.text("held-out sums, decoded greedily", "\n".join(lines))
    right = f"{result['accuracy']:.2%} of {held_out.examples} held-out sums"
    page.text("", f"\nright: {right}")
    page.checkpoints(workdir)
    page.write(Path(workdir) / "report.html")
    print(NEXT.format(package=__package__))
    return result["accuracy"]


NEXT = """
what to try next
  two-digit sums, faster   python -m {package}.main --workdir=runs/tiny \\
                               --config=examples/seq2seq/configs/tiny.py
  read from the left       python -m {package}.main --workdir=runs/left --config.reverse=False
  make it yours            cp -r examples/seq2seq mine, edit mine/train.py, python -m mine.main
"""
