"""Pretrain T5 by span corruption: `python -m examples.t5.main`.

`--config=FILE` chooses gin files, which contain the sizes and hyperparameters. `--gin` changes
single bindings, as in `--gin=T5Config.layers=2 --gin=Recipe.mean_span=20.0`. The same command with
the same workdir resumes a run that was stopped.
"""

import sys
from pathlib import Path

from absl import app, flags, logging

from toile.training import config_flags

from . import gin_files, report, train

WORKDIR = flags.DEFINE_string(
    "workdir", "runs/t5", "Folder for checkpoints and metrics; a run is resumed from it."
)
DEVICES = flags.DEFINE_integer("devices", 1, "Number of devices that share each batch.")
CONFIG = config_flags.DEFINE_config_file(
    "config", Path(__file__).parent / "configs" / "tiny.py", "Config file that names the gin files."
)
config_flags.DEFINE_checks()
GIN = flags.DEFINE_multi_string("gin", [], "Bindings that override those of the gin files.")


def main(argv: list[str]) -> None:
    """Train, and print a report when the run is finished."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # do not report each save
    try:
        recipe, config = gin_files.configured(CONFIG.value, GIN.value)
    except ValueError as error:
        sys.exit(str(error))
    state, finished = train.train_and_evaluate(recipe, config, WORKDIR.value, DEVICES.value)
    if finished:
        report.show(recipe, config, WORKDIR.value, state)


if __name__ == "__main__":
    app.run(main)
