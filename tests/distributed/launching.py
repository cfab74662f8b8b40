"""Starting a program with mpirun, within a stated time, and seeing that nothing of it is left.

Every process that is started has a variable of its own in its environment; those that are still
there when mpirun has ended are found by it.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parents[2]
LIMIT = 120  # seconds; a test that takes this long has failed
MARK = "TOILE_TEST_JOB"
# Open MPI in a container: as root, and where there is no ssh to reach other machines by.
ALONE = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
         "OMPI_MCA_plm_rsh_agent": "true"}


def mpirun() -> str | None:
    """The launcher that was installed with this interpreter, or any other."""
    beside = Path(sys.executable).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


NEEDED = pytest.mark.skipif(
    mpirun() is None or importlib.util.find_spec("mpi4py") is None,
    reason='needs mpi4py and mpiexec: pip install "toile[distributed]"',
)


class Ended:
    """What came of a program: exit status, output, how long it took, and who was left."""

    def __init__(self, code, out, err, seconds, left):
        self.code, self.out, self.err = code, out, err
        self.seconds, self.left = seconds, left

    def check(self):
        """The same, if all went well."""
        assert self.code == 0, f"exit status {self.code}\n{self.out}\n{self.err}"
        assert not self.left
        return self


def start(ranks, program, *arguments, **environment):
    """Run a program of `programs`, or a module, on so many processes, and wait for it."""
    job = uuid.uuid4().hex
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "MPI_"))}
    variables |= {"PYTHONPATH": str(ROOT), MARK: job, "TOILE_PLATFORM": "cpu"} | ALONE | environment
    what = [str(PROGRAMS / program)] if program.endswith(".py") else ["-m", program]
    command = [mpirun(), "-n", str(ranks), sys.executable, *what, *map(str, arguments)]
    began = time.monotonic()
    child = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = child.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        pytest.fail(f"{program} took more than {LIMIT} s\n{out}\n{err}")
    return Ended(child.returncode, out, err, time.monotonic() - began, remaining(job))


def remaining(job):
    """The processes of a job that still run a while later, on systems with /proc."""
    end = time.monotonic() + 10
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={job}".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes())
            except OSError:
                continue  # ended meanwhile, or of somebody else
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)
