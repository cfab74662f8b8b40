"""Two processes at a time save checkpoints and are killed at random moments; reads what they leave.

python killed_saver.py FOLDER KILLS. Run by itself, so that the processes can be forked cheaply.
"""

import contextlib
import os
import random
import signal
import sys
import time
import warnings

import numpy as np

from toile import errors
from toile.training import checkpoints


def tree(step):
    """What is saved at a step: enough bytes for a kill to fall into the writing of them."""
    return {"step": step, "w": np.full(40_000, step), "b": [np.full((20, 30), step, np.float32)]}


def save_forever(folder, step):
    """What a training loop does, on and on."""
    while True:
        step += 1
        with contextlib.suppress(errors.InvalidCheckpointError):  # the other one is ahead
            checkpoints.save_checkpoint(folder, tree(step), step, keep=1 + step % 3)


def main(folder, kills):
    """Kill a saver that often, and look at the directory each time."""
    warnings.simplefilter("error")  # a checkpoint that cannot be read would be skipped with one
    random.seed(0)
    step, unfinished = 0, 0
    checkpoints.save_checkpoint(folder, tree(step), step)
    for _ in range(kills):
        children = []
        for _ in range(2):
            children.append(os.fork())
            if not children[-1]:
                save_forever(folder, step)
        time.sleep(random.uniform(0.002, 0.03))
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        unfinished += "checkpoint_tmp" in os.listdir(folder)
        found = checkpoints.restore_checkpoint(folder, tree(0))
        assert found["step"] >= step, (found["step"], step)
        step = found["step"]
        assert (found["w"] == step).all() and (found["b"][0] == step).all()
    print(f"{kills} kills, {unfinished} of them in mid-write, {step} checkpoints")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
