"""A small process beside the others that says who is missing and who has died.

A process that waits in MPI cannot speak, and a launcher that ends a job may kill all processes
before any of them can. This one is in a session of its own, watches, writes one line and is gone;
it lives no longer than those it watches. It is run as a file and imports the standard library only.
A command comes on standard input once all have joined, `watch RANK:PID …` or `joined`; its end
before that means that the process that started this one has failed.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import stat
import sys
import time
from typing import Any

LOOK = 0.05  # seconds between looks where the system cannot wake us
PATIENCE = 2.0  # seconds that a launcher has to end all processes after one has failed


def say(text: str) -> None:
    """A line on standard error, at once."""
    try:
        os.write(2, f"toile.distributed: {text}\n".encode())
    except OSError:
        pass  # nobody listens any more


def mark(folder: str, name: str, text: str, private: bool = True) -> None:
    """Leave a note in the folder of the job, which no other user may write to if it is private."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if private and not is_own(folder):
            return
        aside = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(8).hex()}")
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(aside, how, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(aside, os.path.join(folder, name))
    except OSError:
        pass  # without notes there are fewer messages, and that is all


def is_own(folder: str) -> bool:
    """Whether a folder is this user's, no link, and closed to writers of other users.

    The name of a job's folder can be guessed, since its processes have to find it, and the folder
    for temporary files is everybody's: what another user has put there is not used."""
    if not hasattr(os, "getuid"):
        return True
    found = os.lstat(folder)
    return (stat.S_ISDIR(found.st_mode) and found.st_uid in (0, os.getuid())
            and not found.st_mode & 0o022)


def read(folder: str, name: str) -> str:
    """A note, empty if there is none."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def arrived(folders: list[str], size: int, limit: float) -> list[int]:
    """The ranks that have come so far, as far as notes in these folders tell."""
    return [r for r in range(size) if any(is_new(folder, str(r), limit) for folder in folders)]


def is_new(folder: str, name: str, limit: float) -> bool:
    """Whether there is a note that can be of this job: one of an earlier job is older."""
    try:
        return time.time() - os.stat(os.path.join(folder, name)).st_mtime < limit + 60
    except OSError:
        return False


def missing(here: list[int], size: int, local: int) -> str:
    """Who has not come, in words, if those `here` have; `local` ranks can leave notes."""
    if local >= size or len(here) == size:
        late = [str(r) for r in range(size) if r not in here]
        if not late:
            return "all have started, but not all have joined"
        return f"missing: {'rank' if len(late) == 1 else 'ranks'} {', '.join(late)}"
    text = f"on this machine {len(here)} of {local} have arrived (ranks {here})"
    return text if len(here) < local else f"{text}: those missing are on other machines"


def leave(folder: str, rank: str) -> None:
    """Take back the note of a rank that is gone before all have joined; the last one cleans up."""
    try:
        os.unlink(os.path.join(folder, rank))
    except OSError:
        pass
    if os.path.isdir(folder) and not any(n.isdigit() for n in os.listdir(folder)):
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_all(
    folder: str, shared: str, rank: int, size: int, local: int, limit: float
) -> str:
    """The command that comes when all have joined; ends the parent if none comes in time."""
    end = time.monotonic() + limit
    while True:
        ready, _, _ = select.select([0], [], [], max(0.0, end - time.monotonic()))
        if ready:
            return sys.stdin.readline()
        if time.monotonic() < end:
            continue
        here = arrived([folder, shared] if shared else [folder], size, limit)
        if here[:1] in ([rank], []) or not read(folder, "failed"):
            say(f"rank {rank} of {size} waited {limit:g} s for the other processes; "
                f"{missing(here, size, local)} (initialization_timeout={limit:g})")
        mark(folder, "failed", "1")
        os.kill(os.getppid(), signal.SIGKILL)  # it is inside of MPI and hears nothing else
        time.sleep(1)  # the launcher ends the others, whose watchers look into the folder
        return ""


def pipe_of(folder: str, rank: int) -> str:
    """The named pipe that a process holds open for as long as it lives."""
    return os.path.join(folder, f"{rank}.pipe")


def hold_pipe(folder: str, rank: int) -> int | None:
    """Make this process's pipe and open it; None where that is not possible."""
    try:
        os.mkfifo(pipe_of(folder, rank), 0o600)
        return os.open(pipe_of(folder, rank), os.O_RDWR | os.O_NONBLOCK)
    except (OSError, AttributeError):
        return None


class Deaths:
    """Waits for processes, which are not its children, to end.

    Linux reports them one by one in the order in which they ended (an epoll keeps it), so that the
    first is known even if this process comes to run when all are gone. What a process has open is
    closed at the beginning of its end; a launcher sees that, too, and can kill the others so
    quickly that they are gone before the first is: so pipes that they hold are watched as well."""

    def __init__(self, ranks: dict[int, int], folder: str = ""):
        self.ranks = dict(ranks)
        self.known: set[int] = set()  # ranks that were told to be ending
        self.fds: dict[int, int] = {}
        self.pipes: dict[int, int] = {}
        if hasattr(os, "pidfd_open") and hasattr(select, "epoll"):
            self.epoll = select.epoll()
            for pid, rank in self.ranks.items():
                self._register(self.pipes, rank, lambda r: os.open(
                    pipe_of(folder, r), os.O_RDONLY | os.O_NONBLOCK))
                self._register(self.fds, pid, os.pidfd_open)

    def _register(self, where: dict[int, int], key: int, opened: Any) -> None:
        try:
            fd = opened(key)
        except OSError:
            return  # gone already, or not allowed: `next` looks after it
        where[fd] = key
        self.epoll.register(fd, select.EPOLLIN)

    def next(self) -> list[int]:
        """The ranks that have ended since the last call; waits for one, but not for long."""
        if self.fds:
            for fd, _ in self.epoll.poll(0.5, maxevents=1):
                self.epoll.unregister(fd)
                os.close(fd)
                if fd in self.pipes:
                    return self._new([self.pipes.pop(fd)])
                return self._new([self.ranks.pop(self.fds.pop(fd))])
        else:
            time.sleep(LOOK)
        seen = set(self.fds.values())
        gone = [pid for pid in self.ranks if pid not in seen and not alive(pid)]
        return self._new([self.ranks.pop(pid) for pid in gone])

    def _new(self, ranks: list[int]) -> list[int]:
        found = [r for r in ranks if r not in self.known]
        self.known.update(found)
        return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")  # a system without /proc: kill has told


def watch(folder: str, ranks: dict[int, int], elsewhere: bool = False) -> None:
    """Name the processes that end without a word before all others, and see that all end then.

    `elsewhere`: whether there are others on other machines; a launcher kills these after those."""
    pids = {rank: pid for pid, rank in ranks.items()}
    deaths = Deaths(ranks, folder)
    host = os.uname().nodename
    end = None
    while deaths.ranks:
        ended = deaths.next()
        if end is None and read(folder, "failed"):
            end = time.monotonic() + PATIENCE
        if end is not None and time.monotonic() > end:  # one that was stopped hears nothing else
            for pid in deaths.ranks:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
        silent = [r for r in ended if not read(folder, f"{r}.end")]
        if silent and not read(folder, "failed"):
            mark(folder, "failed", "1")
            names = ", ".join(f"rank {r} (process {pids[r]} on {host})" for r in silent)
            verb = "has died: it was killed" if len(silent) == 1 else "have died: they were killed"
            say(f"{names} {verb}, crashed, or ended at once (os._exit)" + elsewhere * (
                "; or a process on another machine failed before, which is said there"))
    shutil.rmtree(folder, ignore_errors=True)


def main(folder: str, shared: str, rank: str, size: str, local: str, limit: str) -> None:
    """Watch over the rendezvous, then over the processes of this machine if told to."""
    numbers = int(rank), int(size), int(local), float(limit)
    command = wait_for_all(folder, shared, *numbers).split()
    if command[:1] == ["watch"]:
        pairs = [text.split(":") for text in command[1:]]
        watch(folder, {int(pid): int(r) for r, pid in pairs}, numbers[1] > len(pairs))
    elif not command:
        leave(folder, rank)


if __name__ == "__main__":
    main(*sys.argv[1:])
