"""Two processes, of which the second one fails in the way that the argument names."""

import os
import signal
import sys
import time

import numpy as np

import toile
from toile import lax

way = sys.argv[1]
names = "PMI_RANK", "OMPI_COMM_WORLD_RANK"  # by MPICH, by Open MPI
if way == "never" and any(os.environ.get(name) == "1" for name in names):
    time.sleep(300)
toile.distributed.initialize(
    initialization_timeout=3 if way == "never" else 60,
    heartbeat_timeout_seconds=3 if way == "stopped" else 100,
)
rank = toile.process_index()
total = toile.pmap(lambda x: lax.psum(x, "i"), "i")
one = np.ones((toile.local_device_count(), 4), np.float32)
total(one)
print(f"rank {rank} begins", flush=True)
if way == "other" and rank == 1:
    total = toile.pmap(lambda x: lax.psum(x * x, "i"), "i")
    one = one[:, :2]
for i in range(100000):
    if i == 20 and rank == 1:
        if way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if way == "raises":
            raise ValueError("this process has had enough")
        if way == "exits":
            sys.exit(3)
        if way == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if way == "hangs":
            time.sleep(300)
    if way == "other":
        toile.pmap(lambda x: lax.psum(x + 1, "i"), "i")(one)
    total(one)
