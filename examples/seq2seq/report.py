"""What a finished run shows: the model, the loss curve, sums it was never taught, what is next."""

import json
import sys
from pathlib import Path

from toile import random
from toile.training import checkpoints, terminal

from . import input_pipeline, models, train


def history(workdir, name: str) -> dict[int, float]:
    """The values of a metric by step; where a step was repeated after a kill, the last one."""
    found = {}
    for line in (Path(workdir) / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if name in entry:
            found[entry["step"]] = float(entry[name])
    return found


def show(config, workdir, state) -> float:
    """Print the report; the share of held-out sums that are right."""
    _, data_key = random.split(random.key(config.seed))
    task, _, held_out = input_pipeline.loaders(config, data_key)
    result, (batch, written) = train.evaluate(state, held_out)

    model = models.Seq2Seq(config.features)
    style = {"width": 120, "force_terminal": sys.stdout.isatty()}  # no colours in a file
    table = model.tabulate(
        random.key(0), batch["question"][:1], batch["answer"][:1], depth=1, console_kwargs=style
    )
    print(table)
    loss = history(workdir, "train_loss")
    print(terminal.curve(list(loss), list(loss.values()), log=True, title="training loss by step"))
    print("\nheld-out sums, decoded greedily:")
    print("\n".join(train.as_text(task, batch, written, 12)))
    print(f"\nright: {result['accuracy']:.2%} of {held_out.examples} sums it was never taught")
    print(f"checkpoint: {checkpoints.latest_checkpoint(workdir)}")
    print(NEXT.format(package=__package__))
    return result["accuracy"]


NEXT = """
what to try next
  two-digit sums, faster   python -m {package}.main --workdir=runs/tiny \\
                               --config=examples/seq2seq/configs/tiny.py
  read from the left       python -m {package}.main --workdir=runs/left --config.reverse=False
  make it yours            cp -r examples/seq2seq mine, edit mine/train.py, python -m mine.main
"""
