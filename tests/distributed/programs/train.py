"""Data-parallel training that can be killed and goes on: `train.py MODEL STEPS FOLDER [KILL]`.

Each process reads its part of every batch, the first one writes a checkpoint every 5 steps and, in
the end, losses and parameters. With KILL, the last process kills itself in the middle of that step.
"""

import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np

import toile
from tests.distributed import models
from toile import training
from toile.training import checkpoints

model, steps, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
kill = int(sys.argv[4]) if len(sys.argv) > 4 else None

toile.distributed.initialize(initialization_timeout=60)
rank, ranks = toile.process_index(), toile.process_count()
run = {"state": models.start(model), "losses": np.zeros(steps, np.float32)}
run = checkpoints.restore_checkpoint(folder, run)
state, losses = run["state"], np.array(run["losses"])
began = int(state.step)
print(f"rank {rank} begins after step {began}", flush=True)
step = training.replicated(models.train_step)
for i, batch in enumerate(models.batches(model, steps)):
    if i < began:
        continue
    if i == kill and rank == ranks - 1:
        threading.Timer(0.001, os.kill, (os.getpid(), signal.SIGKILL)).start()
    part = {name: np.array_split(x, ranks)[rank] for name, x in batch.items()}
    state, metrics = step(state, part)
    losses[i] = metrics["loss"]
    if (i + 1) % 5 == 0:
        run = {"state": state, "losses": losses}
        checkpoints.save_checkpoint_multiprocess(folder, run, i + 1, keep=2)
training.check_replicas(state)
if rank == 0:
    leaves = [np.asarray(x) for x in toile.tree.leaves(state)]
    np.savez(folder / "final.npz", *leaves, losses=losses)
