"""Teach an LSTM to add: `python -m examples.seq2seq.main --workdir=runs/seq2seq`.

`--config=FILE` chooses the hyperparameters and `--config.NAME=VALUE` changes one of them. The same
command with the same workdir resumes a run that was stopped. `mpirun -n 2 python -m …` trains on
two processes.
"""

from pathlib import Path

from absl import app, flags, logging

import toile
from toile.training import config_flags
from toile.training.devices import first_devices

from . import report, train

WORKDIR = flags.DEFINE_string(
    "workdir", "runs/seq2seq", "Folder for checkpoints and metrics; a run is resumed from it."
)
DEVICES = flags.DEFINE_integer("devices", 1, "Number of devices per process that share each batch.")
CONFIG = config_flags.DEFINE_config_file("config", Path(__file__).parent / "configs" / "default.py")
config_flags.DEFINE_checks()


def main(argv: list[str]) -> None:
    """Train, and print a report when the run is finished."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # do not report each save
    first_devices(DEVICES.value)  # created before the processes exchange their device lists
    if not toile.distributed.is_initialized():
        toile.distributed.initialize()  # under mpirun, all its processes train together
    state, finished = train.train_and_evaluate(CONFIG.value, WORKDIR.value, DEVICES.value)
    if finished and toile.process_index() == 0:
        report.show(CONFIG.value, WORKDIR.value, state)


if __name__ == "__main__":
    app.run(main)
