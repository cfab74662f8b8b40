"""A small separate process that reports which processes are missing or have died.

A process that waits in MPI cannot report anything, and a launcher that ends a job may kill all
processes before any of them can report anything. The watcher has its own session, writes one line
and exits. It lives no longer than the processes that it watches. It is run as a file and imports
only the standard library. When all processes have joined, a command arrives on standard input:
`watch RANK:PID …` or `joined`. End of file before that means that the parent process has failed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import stat
import sys
import time
from typing import Any

LOOK = 0.05  # seconds between polls if the system cannot notify us
NOTICE = 30.0  # seconds of waiting for the other processes before the missing ones are named
PATIENCE = 2.0  # seconds for a launcher to end all processes after one has failed


def say(text: str) -> None:
    """Print a line on standard error immediately."""
    try:
        os.write(2, f"toile.distributed: {text}\n".encode())
    except OSError:
        pass  # standard error is closed


def mark(folder: str, name: str, text: str, private: bool = True) -> None:
    """Write a note into the job's folder; a private folder must not be writable by other users."""
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
        pass  # without notes, there are just fewer messages


def is_own(folder: str) -> bool:
    """Whether a folder belongs to this user or root, is not a link, and others cannot write to it.

    The name of a job's folder can be guessed, since its processes have to find it, and the folder
    for temporary files is shared: files that another user has put there are not used."""
    if not hasattr(os, "getuid"):
        return True
    found = os.lstat(folder)
    return (stat.S_ISDIR(found.st_mode) and found.st_uid in (0, os.getuid())
            and not found.st_mode & 0o022)


def read(folder: str, name: str) -> str:
    """The text of a note; empty if there is none."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def arrived(folders: list[str], size: int, limit: float) -> list[int]:
    """The ranks that have arrived so far, according to notes in these folders."""
    return [r for r in range(size) if any(is_new(folder, str(r), limit) for folder in folders)]


def is_new(folder: str, name: str, limit: float) -> bool:
    """Whether there is a note recent enough to be from this job, not an earlier one."""
    try:
        return time.time() - os.stat(os.path.join(folder, name)).st_mtime < limit + 60
    except OSError:
        return False


def missing(here: list[int], size: int, local: int) -> str:
    """A description of the missing ranks if those in `here` have arrived; `local` ranks leave
    notes."""
    if local >= size or len(here) == size:
        late = [str(r) for r in range(size) if r not in here]
        if not late:
            return "all have started, but not all have joined"
        return f"missing: {'rank' if len(late) == 1 else 'ranks'} {', '.join(late)}"
    text = f"on this machine {len(here)} of {local} have arrived (ranks {here})"
    return text if len(here) < local else f"{text}: the missing ones are on other machines"


def leave(folder: str, rank: str) -> None:
    """Remove the note of a rank that ended before all have joined; the last one cleans up."""
    try:
        os.unlink(os.path.join(folder, rank))
    except OSError:
        pass
    if os.path.isdir(folder) and not any(n.isdigit() for n in os.listdir(folder)):
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_all(
    folder: str, shared: str, rank: int, size: int, local: int, limit: float
) -> str:
    """Return the command that comes when all have joined; kill the parent if none comes in time."""
    begin = time.monotonic()
    end, notice = begin + limit, begin + NOTICE
    while True:
        until = min(end, notice)
        ready, _, _ = select.select([0], [], [], max(0.0, until - time.monotonic()))
        if ready:
            return sys.stdin.readline()
        if time.monotonic() < until:
            continue
        here = arrived([folder, shared] if shared else [folder], size, limit)
        if until < end:
            notice = end
            if here[:1] in ([rank], []):
                say(f"rank {rank} of {size} has waited {NOTICE:g} s for the other processes, and "
                    f"waits for {limit:g} s; {missing(here, size, local)}")
            continue
        if here[:1] in ([rank], []) or not read(folder, "failed"):
            say(f"rank {rank} of {size} waited {limit:g} s for the other processes; "
                f"{missing(here, size, local)} (initialization_timeout={limit:g})")
        mark(folder, "failed", "1")
        os.kill(os.getppid(), signal.SIGKILL)  # it is inside MPI and ignores other signals
        time.sleep(1)  # the launcher ends the others, whose watchers check the folder
        return ""


def pipe_of(folder: str, rank: int) -> str:
    """The named pipe that a process holds open for as long as it lives."""
    return os.path.join(folder, f"{rank}.pipe")


def hold_pipe(folder: str, rank: int) -> int | None:
    """Make this process's pipe and open it; None if that is not possible."""
    try:
        os.mkfifo(pipe_of(folder, rank), 0o600)
        return os.open(pipe_of(folder, rank), os.O_RDWR | os.O_NONBLOCK)
    except (OSError, AttributeError):
        return None


class Deaths:
    """Waits for processes, which are not its children, to end.

    Linux reports the ended processes one by one in the order in which they ended (epoll keeps this
    order), so the first is known even if the watcher runs only after all have ended. A process
    closes its files early in its exit. A launcher that detects this can kill the other processes so
    quickly that they end before the first one has ended completely. Therefore, the pipes that the
    processes hold open are watched as well."""

    def __init__(self, ranks: dict[int, int], folder: str = ""):
        self.ranks = dict(ranks)
        self.known: set[int] = set()  # ranks already reported as ending
        self.fds: dict[int, int] = {}
        self.pipes: dict[int, int] = {}
        self.early: list[int] = []  # processes that ended before they could be watched
        if hasattr(os, "pidfd_open") and hasattr(select, "epoll"):
            self.epoll = select.epoll()
            for pid, rank in self.ranks.items():
                self._register(self.pipes, rank, lambda r: os.open(
                    pipe_of(folder, r), os.O_RDONLY | os.O_NONBLOCK))
                self._register(self.fds, pid, os.pidfd_open)
            watched = set(self.fds.values())
            self.early = [pid for pid in self.ranks if pid not in watched and not alive(pid)]

    def _register(self, where: dict[int, int], key: int, opened: Any) -> None:
        try:
            fd = opened(key)
        except OSError:
            return  # already gone, or not permitted: `next` polls it
        where[fd] = key
        self.epoll.register(fd, select.EPOLLIN)

    def next(self) -> list[int]:
        """The ranks that have ended since the last call; waits for one, up to a short time."""
        if self.early:
            gone, self.early = self.early, []
            return self._new([self.ranks.pop(pid) for pid in gone])
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
    """Whether a process is running; a zombie is not."""
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
        return not os.path.isdir("/proc/self")  # a system without /proc: rely on kill


def watch(folder: str, ranks: dict[int, int], elsewhere: bool = False) -> None:
    """Report the processes that end first and without notice, and make sure that all processes end.

    `elsewhere` is True if there are other machines. After a failure on one of them, a launcher
    kills the processes on this machine."""
    pids = {rank: pid for pid, rank in ranks.items()}
    deaths = Deaths(ranks, folder)
    with contextlib.suppress(OSError):  # the process that waits for this line may have ended
        os.write(1, b"watching\n")
    host = os.uname().nodename
    end = None
    while deaths.ranks:
        ended = deaths.next()
        if end is None and read(folder, "failed"):
            end = time.monotonic() + PATIENCE
        if end is not None and time.monotonic() > end:  # a stopped process ignores other signals
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
            say(f"{names} {verb}, crashed, or called os._exit" + elsewhere * (
                "; or a process on another machine failed first and reported it there"))
    shutil.rmtree(folder, ignore_errors=True)


def main(folder: str, shared: str, rank: str, size: str, local: str, limit: str) -> None:
    """Watch the rendezvous, then, on request, the processes of this machine."""
    numbers = int(rank), int(size), int(local), float(limit)
    command = wait_for_all(folder, shared, *numbers).split()
    if command[:1] == ["watch"]:
        pairs = [text.split(":") for text in command[1:]]
        watch(folder, {int(pid): int(r) for r, pid in pairs}, numbers[1] > len(pairs))
    elif not command:
        leave(folder, rank)


if __name__ == "__main__":
    main(*sys.argv[1:])
