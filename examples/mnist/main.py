"""Train a network on handwritten digits: `python -m examples.mnist.main --workdir=runs/mnist`.

`--config=FILE` chooses the hyperparameters and `--config.NAME=VALUE` changes one of them. The same
command with the same workdir continues a run that was stopped. `mpirun -n 2 python -m …` trains on
two processes.
"""

from pathlib import Path

from absl import app, flags, logging
from ml_collections import config_flags

import toile

from . import report, train

WORKDIR = flags.DEFINE_string(
    "workdir", "runs/mnist", "Where checkpoints and metrics are written, and continued from."
)
DEVICES = flags.DEFINE_integer(
    "devices", 0, "So many CPU devices, each with a part of every batch; 0: as the config says."
)
CONFIG = config_flags.DEFINE_config_file(
    "config", str(Path(__file__).parent / "configs" / "default.py"), "The hyperparameters."
)


def main(argv: list[str]) -> None:
    """Train, and show what came of it."""
    if len(argv) > 1:
        raise app.UsageError(f"needed flags only, got {argv[1:]}")
    logging.set_verbosity(logging.WARNING)  # saving is no news
    if DEVICES.value:
        CONFIG.value.devices = DEVICES.value
        toile.config.update("jax_num_cpu_devices", DEVICES.value)
    if not toile.distributed.is_initialized():
        toile.distributed.initialize()  # under mpirun: all its processes train together
    state, finished = train.train_and_evaluate(CONFIG.value, WORKDIR.value)
    if finished and toile.process_index() == 0:
        report.show(CONFIG.value, WORKDIR.value, state)


if __name__ == "__main__":
    app.run(main)
