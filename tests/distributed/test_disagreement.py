"""Processes that disagree, fail, die or stop: every one of the others says who and what, in time.

Each case runs on 2 and on 3 processes with `make test-all`; `make test` runs a sample. The last
process is the one that does something else. Counts are printed at the end (`-s`).
"""

import os
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from tests.distributed.launching import (
    ALONE,
    NEEDED,
    PROGRAMS,
    ROOT,
    Ended,
    mpirun,
    remaining,
    start,
)
from toile.parallel.runs import CONFIRM, History, Report, Run, conflict

SLOW = pytest.mark.slow
HEARTBEAT = "3"
AT = r"\(called at \S+disagree.py:\d+ \(\S+\)\)"
SIDES = r"rank \d \(process \d+ on \S+\)"

# What is done, what every other process says, and within how many seconds (of an idle machine,
# from the start of Python on).
CASES = {
    "shape": ([r"psum over i of float32\[4\] at \S+disagree.py:\d+ .*<- differs",
               r"psum over i of float32\[2\] at \S+disagree.py:\d+ .*<- differs"], 15),
    "dtype": ([r"psum over i of float32\[4\]", r"psum over i of int32\[4\]"], 15),
    "order": ([r"collective 1 of 2: psum over i.*<- differs",
               r"collective 1 of 2: pmax over i.*<- differs"], 15),
    "fewer collectives": ([r"collective 2 of 2: pmax.*<- differs",
                           "no collective 2: there are 1"], 15),
    "operation": ([r"operations: \{.*'div'", r"operations: \{.*'psum'"], 15),
    "mesh": ([r"psum over i of float32\[4\]", r"psum over i of float32\[2\]"], 15),
    "known programs": ([f"run different programs: {SIDES} is at program 5, \\w+_step.*{AT}",
                        f"{SIDES} has program 5, \\w+_step.*{AT} instead"], 20),
    "known and new": (["run different programs", "program 5, train_step", "program 5, <lambda>"],
                      20),
    "same bytes": (["program 9, train_step", "program 9, metrics"], 25),
    "one program more": (["program 5, train_step", "program 5, metrics"], 20),
    "a value": (["program 5, train_step", "program 5, process_allgather"], 20),
    "values": (["program 5, process_allgather", "program 5, broadcast_one_to_all"], 25),
    "caught": (["run different programs", "train_step", "metrics"], 20),
    "condition: another collective": (["wait for each other", "psum over i", "pmax over i"], 25),
    "condition: none": (["waits in psum over i of program 3",
                         "has left that program and is at program 4, metrics"], 25),
    "raises": ([r"LAST failed with ValueError: the data is bad"], 15),
    "exits": ([r"waits in psum over i for LAST, which has ended; this is program 5"], 20),
    "stopped": ([r"LAST has been silent for \d s: it is stopped"], 25),
}
FAST = {("order", 2), ("known programs", 3)}


def last(ranks):
    return rf"rank {ranks - 1} \(process \d+ on \S+\)"


@NEEDED
@pytest.mark.parametrize("way, ranks", [
    pytest.param(way, ranks, marks=() if (way, ranks) in FAST else SLOW)
    for way in CASES for ranks in (2, 3)
])
def test_every_process_says_what_is_wrong(way, ranks):
    texts, limit = CASES[way]
    heartbeat = HEARTBEAT if way == "stopped" else "50"
    ended = start(ranks, "disagree.py", way, TEST_HEARTBEAT=heartbeat)
    assert ended.code != 0 and not ended.left
    assert ended.seconds < 2 * limit, ended.seconds  # several tests run at the same time
    raised = ended.err.split("ProcessFailure: ")[1:]
    silent = {"raises", "exits", "stopped"}  # the last one has failed, or says nothing
    assert len(raised) == ranks - (way in silent), ended.err
    for text in texts:
        for one in raised:
            assert re.search(text.replace("LAST", last(ranks)), one), f"{text}\n{ended.err}"


@NEEDED
@pytest.mark.parametrize("way, ranks", [
    ("goes on", 2), pytest.param("goes on", 3, marks=SLOW),
    ("late again and again", 2), pytest.param("late again and again", 3, marks=SLOW),
    pytest.param("late inside a program", 2, marks=SLOW),
    pytest.param("late", 3, marks=SLOW), pytest.param("other threads", 2, marks=SLOW),
    pytest.param("stopped and continued", 2, marks=SLOW),
])
def test_what_is_no_failure(way, ranks):
    """Processes that are late, that were stopped for a while, or caught a disagreement in time."""
    ended = start(ranks, "disagree.py", way, TEST_HEARTBEAT="4").check()
    assert ended.out.count("ends well") == ranks


@NEEDED
@SLOW
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_stopped_process_is_known_within_a_minute(ranks):
    """As things are without any setting."""
    ended = start(ranks, "disagree.py", "stopped")
    assert ended.code != 0 and not ended.left
    said = re.findall(f"{last(ranks)} has been silent for (\\d+) s: it is stopped", ended.err)
    assert len(said) >= ranks - 1 and all(45 < int(s) <= 60 for s in said), ended.err
    print(f"\nstopped: known after {said} s, ended after {ended.seconds:.0f} s")


@NEEDED
@SLOW
def test_two_stopped_processes_are_both_named():
    ended = start(3, "disagree.py", "two stopped", TEST_HEARTBEAT=HEARTBEAT)
    assert ended.code != 0 and not ended.left
    for rank in (1, 2):
        assert re.search(rf"rank {rank} \(process \d+ on \S+\) has been silent", ended.err)


@NEEDED
@SLOW
def test_what_comparing_costs():
    """Once per program; later calls only count."""
    ended = start(2, "disagree.py", "cost").check()
    found = re.search(r"numbering ([\d.]+) µs; .*comparing (\d+) µs", ended.out)
    print(f"\n{ended.out.strip()}")
    assert float(found[1]) < 25 and int(found[2]) < 20_000


@NEEDED
@pytest.mark.parametrize("count", [2, pytest.param(40, marks=SLOW)])
def test_any_process_killed_or_stopped_at_any_moment(count):
    """In a training loop: the one that was hit is named, and nothing is left."""
    seconds = []
    for i in range(count):
        ranks, way = 2 + i // 2 % 2, (signal.SIGKILL, signal.SIGSTOP)[i % 2]
        victim, moment = i % ranks, 0.1 * (i % 7)
        ended, took = struck(ranks, victim, way, moment)
        seconds.append(took)
        named = rf"rank {victim} \(process \d+ on \S+\) has "
        said = set(re.findall(r"(rank \d) \(process \d+ on \S+\) has ", ended.err))
        assert re.search(named + ("died" if way == signal.SIGKILL else "been silent"), ended.err)
        assert said == {f"rank {victim}"}, ended.err
        assert ended.code != 0 and not ended.left
    print(f"\n{count} processes killed or stopped: all named, the last process was gone after at "
          f"most {max(seconds):.1f} s (heartbeat_timeout_seconds={HEARTBEAT})")


def struck(ranks, victim, way, moment):
    """A training loop in which one process gets a signal, and how long it took to end then."""
    job = os.urandom(8).hex()
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "MPI_"))}
    variables |= {"PYTHONPATH": str(ROOT), "TOILE_TEST_JOB": job, "TOILE_PLATFORM": "cpu",
                  "TEST_HEARTBEAT": HEARTBEAT} | ALONE
    child = subprocess.Popen(
        [mpirun(), "-n", str(ranks), sys.executable, str(PROGRAMS / "disagree.py"), "loop"],
        env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True)
    try:
        pids, text, end = {}, "", time.monotonic() + 90
        while len(pids) < ranks:  # lines of several processes can be on one
            assert time.monotonic() < end and child.poll() is None, text
            if select.select([child.stdout], [], [], 0.1)[0]:
                text += os.read(child.stdout.fileno(), 1 << 16).decode()
            pids = {int(r): int(p) for r, p in re.findall(r"rank (\d) loops as <(\d+)>", text)}
        time.sleep(moment)
        os.kill(pids[victim], way)
        began = time.monotonic()
        out, err = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
    took = time.monotonic() - began
    return Ended(child.returncode, out, err, took, remaining(job)), took


# ------------------------------------------------------------------------- without other processes

BOTH = (0, 1)


def reported(number, digest, waited=1.0, what="psum over i", group=16, heard=10.0):
    """What rank 0 says to rank 1, when it had read an answer that rank 1 sent at `heard`."""
    made = Report(1, Run(BOTH, number, digest, f"f{digest}", "a.py:1", None), what, group, (1,),
                  waited, 0.0)
    made.heard = heard
    return made


def judged(report, digests, finished=None, waits=(), since=0.0):
    """What rank 1 finds: it has left the first programs, or waits in one, since some moment."""
    history = History(BOTH)
    runs = [history.enter(d, f"f{d}", "b.py:2") for d in digests]
    for run in runs[:len(digests) if finished is None else finished]:
        run.end()
        run.ended = since
    own = [Report(2, runs[n - 1], what, group, (0,), 9.0, since) for n, what, group in waits]
    return conflict(report, 0, 1, {BOTH: history}, own, lambda r: f"rank {r}")


def test_the_same_number_is_the_same_program():
    assert "different programs" in judged(reported(2, 7), [5, 6])
    assert "f6" in judged(reported(2, 7), [5, 6]) and "f7" in judged(reported(2, 7), [5, 6])
    assert "different programs" in judged(reported(2, 7, waited=None), [5, 6, 7])
    assert judged(reported(3, 7), [5, 6]) is None  # this process is not there yet
    assert judged(reported(2, 6, waited=None), [5, 6]) is None


def test_a_program_that_one_has_left():
    assert "has left that program" in judged(reported(1, 5), [5, 6])
    assert judged(reported(2, 6), [5, 6], finished=1) is None  # it is at work on it
    late = 10 - CONFIRM / 2
    assert judged(reported(1, 5), [5, 6], since=late) is None  # a message may be on its way
    # No answer was read before it waited: it may have received the message since.
    assert judged(reported(1, 5, heard=0.0), [5, 6], since=5.0) is None


def test_processes_that_wait_for_each_other():
    waiting = reported(2, 6)
    assert judged(waiting, [5, 6], 1, [(2, "psum over i", 16)]) is None
    assert "wait for each other" in judged(waiting, [5, 6], 1, [(2, "pmax over i", 16)])
    assert judged(waiting, [5, 6], 1, [(2, "pmax over j", 32)]) is None  # of other devices
    recent = judged(waiting, [5, 6], 1, [(2, "pmax over i", 16)], since=10 - CONFIRM / 2)
    assert recent is None  # their report may be older than this wait
    other = reported(2, 6)
    other.run.ranks = (0, 1, 2)
    assert "wait for each other" in judged(other, [5, 6], 1, [(2, "psum over i", 16)])
    assert judged(other, [5, 6]) is None


def test_runs_that_are_compared_see_by_themselves():
    report = reported(1, 7)
    report.run.comparing = True
    history = History(BOTH)
    run = history.enter(5, "f5", "")
    run.comparing = True
    assert history.latest() is None
    assert conflict(report, 0, 1, {BOTH: history}, (), str) is None
    run.comparing = False
    assert history.latest() is run
    assert conflict(report, 0, 1, {BOTH: history}, (), str) is not None


def test_reports_travel():
    made = Report.unpacked(reported(3, 1 << 62).packed(7.5), 5.0)
    assert made.heard == 7.5
    assert (made.run.number, made.run.digest, made.run.ranks) == (3, 1 << 62, BOTH)
    assert (made.what, made.group, made.late, made.first) == ("psum over i", 16, (1,), 5.0)
