"""How processes find each other: what launchers say, what is said when it does not work out."""

import os
import subprocess
import sys
import threading
import time

import pytest

from tests.distributed.launching import ALONE, NEEDED, ROOT
from toile.distributed import rendezvous, watcher
from toile.distributed.rendezvous import Launch
from toile.engine import devices

LAUNCHES = [
    ({}, None),
    ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, Launch("mpirun", 1, 4, 2)),
    ({"PMI_RANK": "0", "PMI_SIZE": "1"}, Launch("mpirun", 0, 1, 1)),
    ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8",
      "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, Launch("mpirun", 3, 8, 4)),
    ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0",
      "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}, Launch("srun", 2, 4, 2)),
    ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}, Launch("srun", 2, 3, 3)),
    # A batch script has an allocation of 4 tasks, and is one process.
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
]


@pytest.mark.parametrize("environment, expected", LAUNCHES)
def test_launchers_say_who_a_process_is(environment, expected):
    assert rendezvous.detect(environment) == expected


def test_the_folder_of_a_job_is_its_own():
    slurm = rendezvous.job_folder({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"})
    assert slurm.endswith("slurm-7.1")
    assert rendezvous.job_folder({}) == rendezvous.job_folder({})


def run(code, **environment):
    """A process of its own that no launcher started."""
    variables = {k: v for k, v in os.environ.items()
                 if not k.startswith(("PMI_", "MPI_", "SLURM_", "OMPI_"))}
    variables |= {"PYTHONPATH": str(ROOT), "TOILE_PLATFORM": "cpu"} | ALONE | environment
    return subprocess.run([sys.executable, "-c", code], env=variables, text=True,
                          capture_output=True, timeout=60)


INITIALIZE = "import toile; toile.distributed.initialize(initialization_timeout=20)"
SLURM = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7",
         "SLURM_STEP_ID": "1"}


def test_without_mpi_the_error_says_what_to_install(tmp_path):
    hide = "import sys; sys.modules['mpi4py'] = None\n"
    ended = run(hide + INITIALIZE, **SLURM, TMPDIR=str(tmp_path))
    assert ended.returncode == 1
    assert "needed mpi4py and an MPI library for the 2 processes that srun" in ended.stderr
    assert 'pip install "toile[distributed]"' in ended.stderr
    assert not list(tmp_path.glob("toile-*"))


@NEEDED
def test_an_mpi_that_does_not_know_slurm_is_an_error(tmp_path):
    ended = run(INITIALIZE, **SLURM, TMPDIR=str(tmp_path))
    assert ended.returncode == 1
    assert "needed an MPI world of the 2 processes that srun started, got 1" in ended.stderr
    assert "srun --mpi=pmi2" in ended.stderr
    assert not list(tmp_path.glob("toile-*"))


def test_one_process_needs_no_mpi():
    code = ("import sys; sys.modules['mpi4py'] = None\n" + INITIALIZE +
            "\nassert toile.process_count() == 1 and toile.distributed.is_initialized()")
    ended = run(code)
    assert ended.returncode == 0, ended.stderr


def test_who_is_missing(tmp_path):
    folders = [str(tmp_path / "job"), str(tmp_path / "shared")]
    watcher.mark(folders[0], "0", "1234")
    watcher.mark(folders[1], "2", "1236")
    watcher.mark(folders[1], "3", "1237")
    long_ago = time.time() - 1000
    os.utime(tmp_path / "shared" / "3", (long_ago, long_ago))  # of a job before this one
    assert watcher.arrived(folders[:1], 4, 30) == [0]
    assert watcher.arrived(folders, 4, 30) == [0, 2]
    assert watcher.missing([], 2, 2) == "missing: ranks 0, 1"
    assert watcher.missing([0, 2], 4, 4) == "missing: ranks 1, 3"
    assert "2 of 2 have arrived (ranks [0, 2]): the missing ones are on other machines" in (
        watcher.missing([0, 2], 4, 2))
    assert "2 of 3 have arrived" in watcher.missing([0, 2], 6, 3)
    assert "not all have joined" in watcher.missing([0, 1], 2, 2)


def test_the_missing_are_named_early(tmp_path, monkeypatch, capfd):
    """Long before the time limit, which is JAX's."""
    folder = str(tmp_path / "job")
    watcher.mark(folder, "1", "1234")
    reading, writing = os.pipe()
    monkeypatch.setattr(watcher, "NOTICE", 0.1)
    monkeypatch.setattr(watcher.select, "select", _on(reading, watcher.select.select))
    timer = threading.Timer(0.5, lambda: os.write(writing, b"done\n"))
    timer.start()
    with os.fdopen(reading) as pipe:
        monkeypatch.setattr(watcher.sys, "stdin", pipe)
        assert watcher.wait_for_all(folder, "", 1, 3, 3, 60.0) == "done\n"
    timer.join()
    os.close(writing)
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "rank 1 of 3 has waited 0.1 s" in said
    assert "waits for 60 s; missing: ranks 0, 2" in said


def _on(descriptor, select):
    return lambda reads, writes, errors, seconds: select([descriptor], writes, errors, seconds)


def test_a_death_before_the_watch_begins_is_the_first():
    """As on a busy machine: the launcher has reaped that process, and kills the others at once."""
    first, second = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    first.kill()
    first.wait()
    deaths = watcher.Deaths({first.pid: 0, second.pid: 1})
    second.kill()
    second.wait()
    assert deaths.next() == [0]
    found = []
    while not found:
        found = deaths.next()
    assert found == [1] and not deaths.ranks



def test_the_first_of_several_deaths_is_known(capfd, tmp_path):
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    pids = {child.pid: rank for rank, child in enumerate(children)}
    deaths = watcher.Deaths(pids)
    for rank in (1, 0, 2):
        children[rank].kill()
        children[rank].wait()
        time.sleep(0.01)
    assert deaths.next()[0] == 1 or deaths.epoll is None
    folder = str(tmp_path / "job")
    watcher.mark(folder, "0.end", "1")
    watcher.watch(folder, pids)
    assert "rank 1 (process " in capfd.readouterr().err
    assert not os.path.exists(folder)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
def test_who_begins_to_end_first_is_blamed(tmp_path, capfd):
    """A launcher that sees a process end kills the others, which may be gone before it is."""
    folder = str(tmp_path)
    pipes = [watcher.hold_pipe(folder, rank) for rank in (0, 1)]
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    deaths = watcher.Deaths({child.pid: rank for rank, child in enumerate(children)}, folder)
    os.close(pipes[1])  # it ends, and is not gone yet
    children[0].kill()
    children[0].wait()
    os.close(pipes[0])
    children[1].kill()
    children[1].wait()
    found = []
    while deaths.ranks:
        found += deaths.next()
    assert found == [1, 0]


def test_devices_of_joined_processes():
    first = devices.first_device()
    devices.join(1, [2, 1, 3])
    try:
        everyone = devices.all_cpu_devices()
        assert [d.id for d in everyone] == list(range(6))
        assert [d.process_index for d in everyone] == [0, 0, 1, 2, 2, 2]
        assert [d.local_hardware_id for d in everyone] == [0, 1, 0, 0, 1, 2]
        assert devices.cpu_devices() == [first] == [everyone[2]]
        assert (devices.process_index(), devices.process_count()) == (1, 3)
    finally:
        devices.leave()
    assert devices.process_count() == 1 and first.id == 0 and first.process_index == 0


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners of folders")
@pytest.mark.parametrize("planted", ["a link", "open to all", "a file"])
def test_notes_stay_out_of_folders_of_others(tmp_path, planted):
    """The name of a job's folder can be guessed: what lies there already is not written to."""
    target, folder = tmp_path / "target", tmp_path / "toile-1-2-3"
    target.mkdir()
    if planted == "a link":
        folder.symlink_to(target)
    elif planted == "open to all":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("theirs")
    watcher.mark(str(folder), "0", "note")
    assert not list(target.iterdir())
    assert planted == "a file" or not list(folder.iterdir())


def test_notes(tmp_path):
    folder = tmp_path / "toile-1-2-3"
    watcher.mark(str(folder), "0", "note")
    assert [x.name for x in folder.iterdir()] == ["0"] and watcher.read(str(folder), "0") == "note"
