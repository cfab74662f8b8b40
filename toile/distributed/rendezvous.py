"""Connect the processes that a launcher has started, through MPI and within a time limit.

The number of processes is read from environment variables, which are set by `mpirun` (MPICH or Open
MPI) or by `srun` (Slurm). MPI connects the processes. Meanwhile, a watcher process
(`toile.distributed.watcher`) enforces the time limit, because MPI_Init blocks the interpreter. This
module may import the standard library, engine.source and distributed.watcher.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toile.distributed import watcher
from toile.engine.source import here

FOLDER_VARIABLE = "TOILE_RENDEZVOUS"
LAUNCHERS = (b"hydra_pmi_proxy", b"orted", b"prted", b"slurmstepd", b"mpiexec")
INSTALL = 'pip install "toile[distributed]"'


@dataclass(frozen=True)
class Launch:
    """The information in the environment about the processes that were started together."""

    launcher: str
    rank: int
    size: int
    local: int  # how many of them are on this machine, as far as is known


def detect(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """Read the launcher's data about this process; None if no launcher started it."""

    def number(name: str) -> int | None:
        text = environment.get(name, "")
        return int(text) if text.isdigit() else None

    rank, size = number("PMI_RANK"), number("PMI_SIZE")
    if rank is not None and size is not None:
        return Launch("mpirun", rank, size, number("MPI_LOCALNRANKS") or size)
    rank, size = number("OMPI_COMM_WORLD_RANK"), number("OMPI_COMM_WORLD_SIZE")
    if rank is not None and size is not None:
        return Launch("mpirun", rank, size, number("OMPI_COMM_WORLD_LOCAL_SIZE") or size)
    # Slurm sets SLURM_NTASKS for a whole allocation; srun starts a step of it.
    rank = number("SLURM_PROCID")
    size = number("SLURM_STEP_NUM_TASKS")
    if size is None and number("SLURM_STEP_ID") is not None:
        size = number("SLURM_NTASKS")
    if rank is not None and size is not None:
        text = environment.get("SLURM_STEP_TASKS_PER_NODE", "").split("(")[0].split(",")[0]
        local = int(text) if text.isdigit() else size
        return Launch("srun", rank, size, local)
    return None


def _stat(pid: int) -> tuple[bytes, int, bytes] | None:
    """Name, parent and start time of a process; None if there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    name = text[text.index(b"(") + 1 : text.rindex(b")")]
    rest = text[text.rindex(b")") + 2 :].split()
    return name, int(rest[1]), rest[19]


def job_folder(environment: Mapping[str, str] = os.environ) -> str:
    """A folder that only the processes of this job on this machine share."""
    base = Path(tempfile.gettempdir())
    user = os.getuid() if hasattr(os, "getuid") else 0
    if "SLURM_JOB_ID" in environment and "SLURM_STEP_ID" in environment:
        job = f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}"
        return str(base / f"toile-{user}-slurm-{job}")
    pid = os.getppid()
    found = _stat(pid)
    while found is not None and found[0] not in LAUNCHERS and found[1] > 1:
        pid = found[1]
        found = _stat(pid)
    if found is None or found[0] not in LAUNCHERS:
        pid = os.getppid()
        found = _stat(pid)
    start = found[2].decode() if found is not None else "0"
    return str(base / f"toile-{user}-{pid}-{start}")


class Meeting:
    """The rendezvous of this process: files in the job's folder, and the watcher."""

    def __init__(self, launch: Launch, limit: float):
        self.launch, self.folder = launch, job_folder()
        self.shared = os.environ.get(FOLDER_VARIABLE, "")  # a folder visible to all machines
        watcher.mark(self.folder, str(launch.rank), str(os.getpid()))
        self.pipe = watcher.hold_pipe(self.folder, launch.rank)
        if self.shared:
            watcher.mark(self.shared, str(launch.rank), str(os.getpid()), private=False)
        local = launch.size if self.shared else launch.local
        arguments = [self.folder, self.shared, launch.rank, launch.size, local, limit]
        self.process: Any = subprocess.Popen(
            [sys.executable, "-I", "-S", watcher.__file__, *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )

    def tell(self, command: str) -> None:
        """Send the watcher its command, if any. Wait until it exits; if it is to watch the
        processes, wait only until it does, so that it sees which process ends first."""
        try:
            self.process.stdin.write(command.encode())
            self.process.stdin.close()
            if command.startswith("watch"):
                self.process.stdout.readline()
            self.process.stdout.close()
        except OSError:
            pass
        if not command.startswith("watch"):
            self.process.wait()
        if self.shared:
            Path(self.shared, str(self.launch.rank)).unlink(missing_ok=True)

    def close_pipe(self) -> None:
        """Close the pipe in a forked child, which must not hold it open for its parent."""
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None

    def end(self, failed: bool) -> None:
        """Record that this process ends normally, or that it has already reported its failure."""
        watcher.mark(self.folder, f"{self.launch.rank}.end", "1")
        if failed:
            watcher.mark(self.folder, "failed", "1")


def start_mpi(launch: Launch) -> Any:
    """The module mpi4py.MPI, with MPI started; errors explain what to do."""
    try:
        import mpi4py

        mpi4py.rc.initialize = False  # not on import, so that errors are ours
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(
            f"distributed.initialize: needed mpi4py and an MPI library for the {launch.size} "
            f"processes that {launch.launcher} started, got {type(error).__name__}: {error} "
            f"({INSTALL}){here()}"
        ) from error
    if not MPI.Is_initialized():
        MPI.Init_thread(MPI.THREAD_SERIALIZED)
        # If a process ends without MPI_Finalize, the launcher assumes that it crashed, and kills
        # the others.
        process = os.getpid()
        atexit.register(lambda: MPI.Finalize() if os.getpid() == process else None)
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise RuntimeError(
            "distributed.initialize: needed an MPI that several threads may use in turn "
            f"(MPI_THREAD_SERIALIZED), got level {MPI.Query_thread()}{here()}"
        )
    size = MPI.COMM_WORLD.Get_size()
    if size != launch.size:
        hint = ("start it with srun --mpi=pmi2 or with mpirun inside the allocation"
                if launch.launcher == "srun" else "use the mpirun of the MPI that mpi4py loads")
        raise RuntimeError(
            f"distributed.initialize: needed an MPI world of the {launch.size} processes that "
            f"{launch.launcher} started, got {size} ({hint}; {MPI.Get_library_version().split()[0]}"
            f" is loaded){here()}"
        )
    return MPI
