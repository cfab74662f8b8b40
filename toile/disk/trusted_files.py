"""Folders and files that only this user or root can have written.

A folder is opened once for each use and checked through its descriptor, and the files in it are
opened through that descriptor. Therefore, the folder that is read is the one that was checked, even
if the path changes in the meantime. Files are opened without following symbolic links and without
blocking, and must be regular files. Windows has no owners and modes of this kind. On Windows, the
folder is protected by the access rights of the user's profile, and only the kind and the size of
files are checked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_HAS_OWNERS = hasattr(os, "geteuid")
_COMMON = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _COMMON | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _COMMON
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _COMMON
_MOST_LINKS = 40  # in one path, as in Linux
# Errors not caused by the file itself: exhausted resources, an interruption, a failing disk.
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EIO})


class Untrusted(Exception):
    """A folder or file must not be used; the message gives the reason."""


def _check_owner(found: os.stat_result) -> None:
    """Raise Untrusted if a file or folder belongs to another user, who could change it."""
    if _HAS_OWNERS and found.st_uid not in (0, os.geteuid()):
        raise Untrusted(f"it belongs to user {found.st_uid}, not to user {os.geteuid()} or root")


def _check_mode(found: os.stat_result, others: int = 0o022) -> None:
    """Raise Untrusted if users other than the owner can write: if mode bits in `others` are set."""
    if _HAS_OWNERS and found.st_mode & others:
        mode = stat.S_IMODE(found.st_mode)
        raise Untrusted(f"other users can write to it (its mode is {mode:o})")


def _names(path: str) -> list[str]:
    """The components of a path, last first."""
    return [p for p in reversed(path.split(os.sep)) if p and p != "."]


def resolved(folder: Path) -> str:
    """The path of a folder with symbolic links resolved; raises Untrusted if the path is unsafe.

    Each link and each folder on the way must belong to this user or root. Folders on the way must
    not be writable by everyone, unless they are sticky, as /tmp is. They may be writable by a
    group: a member of the group could replace a folder, but the new folder would belong to that
    member and be rejected. The walk ends at the first name that does not exist yet."""
    path = os.path.abspath(folder)
    if not _HAS_OWNERS:
        return path
    todo, at, links = _names(path), path[:1] if os.sep == "/" else "", 0
    while todo:
        name = todo.pop()
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = os.path.join(at, name)
        try:
            found = os.lstat(here)
        except FileNotFoundError:
            return os.path.join(here, *reversed(todo))
        try:
            _check_owner(found)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise Untrusted("its path has too many links")
                target = os.readlink(here)
                todo += _names(target)
                at = "/" if target.startswith("/") else at
                continue
            if not found.st_mode & stat.S_ISVTX:
                _check_mode(found, 0o002)
        except Untrusted as problem:
            raise problem if not todo else Untrusted(f"in its path, {here}: {problem}") from None
        at = here
    return at


class Folder:
    """An open folder that was checked; files in it are accessed through its descriptor."""

    def __init__(self, path: str):
        self.path = path
        self.descriptor: int | None = None
        if _BY_DESCRIPTOR:
            self.descriptor = os.open(path, _FOLDER)
        try:
            found = os.stat(path) if self.descriptor is None else os.fstat(self.descriptor)
            if not stat.S_ISDIR(found.st_mode):
                raise Untrusted("it is not a folder")
            _check_owner(found)
            _check_mode(found)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name) if self.descriptor is None else name

    def read(self, name: str, most: int) -> tuple[bytes, float] | None:
        """The content of a file and when it was last used; None if it is missing or unreadable now.

        Raises Untrusted unless it is a regular file of at most `most` bytes to which only this user
        or root can write."""
        try:
            descriptor = os.open(self._at(name), _READ, dir_fd=self.descriptor)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in _PASSING:
                return None
            if error.errno in (errno.ELOOP, getattr(errno, "EMLINK", errno.ELOOP)):
                raise Untrusted("it is a link") from None
            raise Untrusted(f"it cannot be opened ({error.strerror})") from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Untrusted("it is not a regular file")
            _check_owner(found)
            _check_mode(found)
            if found.st_size > most:
                raise Untrusted(f"it has {found.st_size} bytes, more than the {most} allowed")
            return _read_all(descriptor, found.st_size), found.st_mtime
        except OSError:
            return None  # the disk failed; a later attempt may succeed
        finally:
            os.close(descriptor)

    def write(self, name: str, *parts: bytes) -> None:
        """Create a file, which must not exist yet, for this user only."""
        descriptor = os.open(self._at(name), _MAKE, 0o600, dir_fd=self.descriptor)
        with open(descriptor, "wb", buffering=0) as file:
            for part in parts:
                view = memoryview(part)
                while view:
                    view = view[file.write(view):]

    def replace(self, name: str, other: str) -> None:
        """Rename a file atomically, replacing any file of the other name."""
        os.replace(self._at(name), self._at(other), src_dir_fd=self.descriptor,
                   dst_dir_fd=self.descriptor)

    def has(self, name: str) -> bool:
        """Whether there is a regular file of this name."""
        try:
            found = os.stat(self._at(name), dir_fd=self.descriptor, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode)

    def remove(self, name: str) -> None:
        """Remove a file, a link (not what it points to) or an empty folder, if that is possible."""
        try:
            os.unlink(self._at(name), dir_fd=self.descriptor)
        except FileNotFoundError:
            return
        except OSError:  # it is a folder, or nothing in here can be changed
            try:
                os.rmdir(self._at(name), dir_fd=self.descriptor)
            except OSError:
                return

    def touch(self, name: str) -> None:
        """Set a file's time of last use to now."""
        try:
            if self.descriptor is None:
                os.utime(self._at(name))
            else:
                os.utime(name, dir_fd=self.descriptor, follow_symlinks=False)
        except (OSError, NotImplementedError):
            return  # read-only: its age is then counted from when it was written

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Names with their `lstat` results; files that are removed meanwhile are left out."""
        where = self.path if self.descriptor is None else self.descriptor
        with os.scandir(where) as entries:
            for entry in entries:
                try:
                    yield entry.name, entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # another process removed it


def _read_all(descriptor: int, size: int) -> bytes:
    """The whole content of a file that had `size` bytes; raises Untrusted if it has grown since."""
    content = os.read(descriptor, size + 1)
    while len(content) <= size:
        more = os.read(descriptor, size + 1 - len(content))
        if not more:
            return content
        content += more
    raise Untrusted("it grew while it was read")


@contextmanager
def opened(path: str) -> Iterator[Folder]:
    """A checked folder, open until the end of the block."""
    folder = Folder(path)
    try:
        yield folder
    finally:
        folder.close()


def make(path: str) -> None:
    """Create a folder and its missing parents, for this user only."""
    missing = []
    while path and not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue  # another process made it
