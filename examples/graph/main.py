"""Train a graph network: `python -m examples.graph.main --workdir=runs/graph`.

`--config=FILE` chooses the hyperparameters and `--config.NAME=VALUE` changes one of them. The same
command with the same workdir resumes a run that was stopped.
"""

from pathlib import Path

from absl import app, flags, logging

from toile.training import config_flags

from . import report, train

WORKDIR = flags.DEFINE_string(
    "workdir", "runs/graph", "Folder for checkpoints and metrics; a run is resumed from it."
)
DEVICES = flags.DEFINE_integer("devices", 1, "Number of devices that share each batch.")
CONFIG = config_flags.DEFINE_config_file("config", Path(__file__).parent / "configs" / "tiny.py")
config_flags.DEFINE_checks()


def main(argv: list[str]) -> None:
    """Train, and print a report when the run is finished."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # do not report each save
    state, finished = train.train_and_evaluate(CONFIG.value, WORKDIR.value, DEVICES.value)
    if finished:
        report.show(CONFIG.value, WORKDIR.value, state)


if __name__ == "__main__":
    app.run(main)
