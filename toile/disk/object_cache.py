"""Compiled kernels and plans on disk, one file each, shared by the processes of one user.

The format of a file is `magic | checksum | object`. The checksum covers the name, the format, the
machine and the object, so that no entry can be mistaken for another. Files are written under a
temporary name and then renamed, so a reader never finds an incomplete file. A file that anyone but
this user or root could have written is not used (see `trusted_files`). A file whose checksum is
wrong is created again. When the folder exceeds its limit, the least recently read files are removed
first. TOILE_CACHE=off turns the cache off, TOILE_CACHE_DIR sets its folder and TOILE_CACHE_SIZE its
limit (in bytes, or as in 512MB).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from toile.disk import trusted_files
from toile.disk.trusted_files import Folder, Untrusted
from toile.engine.errors import CacheWarning

MAGIC = b"toile-2\n"
DEFAULT_LIMIT = 512 << 20
MOST_BYTES = 256 << 20  # of one entry
_OLDER = (b"toile-1\n",)  # files in these formats are removed without a warning
_CHECKSUM_BYTES = 32
_HEAD = len(MAGIC) + _CHECKSUM_BYTES
_ABANDONED_S = 3600  # temporary files older than this were left by processes that died
_FRESH_S = 3600  # a file's time of last use is recorded to this precision
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TEMPORARY = ".new-"
_NAME = re.compile(r"[0-9a-f]{2,128}")
_warned: set[tuple[str, str]] = set()  # warnings given so far: subject and folder


class ObjectCache:
    """Objects by key (a hexadecimal digest) in one folder.

    `machine` names the processor that objects are for; those for another one fail the checksum."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT, machine: str = ""):
        self.folder = folder
        self.limit = limit
        self.machine = machine
        self.usable = True  # until a check of the folder itself fails
        self.writable = True
        self.unscanned: int | None = None  # bytes written since the folder was last measured
        self._path: str | None = None  # the folder's path with symbolic links resolved

    # ---- objects
    def get(self, key: str) -> bytes | None:
        """The object; None if there is none, or if it fails a check and is therefore removed."""
        content: bytes | None = None
        problem = ""
        with self._opened() as folder:
            if folder is None or not _NAME.fullmatch(key):
                return None
            try:
                found = folder.read(key, MOST_BYTES + _HEAD)
                if found is None:
                    return None
                content, used = found
                problem = self._problem_of(key, content)
            except Untrusted as why:
                problem = str(why)
            if not problem and time.time() - used > _FRESH_S:
                folder.touch(key)
            if problem:
                folder.remove(key)
        if content is not None and not problem:
            return content[_HEAD:]
        if content is None or content[: len(MAGIC)] not in _OLDER:
            self._warn_of_entry(key, problem)
        return None

    def _problem_of(self, key: str, content: bytes) -> str:
        """What is wrong with a file's content; empty if nothing is."""
        if content[: len(MAGIC)] != MAGIC:
            return "it does not begin like an entry of the cache"
        if content[len(MAGIC) : _HEAD] != self._checksum(key, memoryview(content)[_HEAD:]):
            return "its checksum does not match its name, this machine and its content"
        return ""

    def _checksum(self, key: str, data: bytes | memoryview) -> bytes:
        head = [MAGIC, key.encode(), self.machine.encode()]
        found = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
        for part in (*head, data):
            found.update(len(part).to_bytes(8, "little"))  # other parts then give other bytes
            found.update(part)
        return found.digest()

    def refuse(self, key: str, problem: str) -> None:
        """Remove an object that its reader cannot use; warns once per process and folder."""
        self.remove(key)
        self._warn_of_entry(key, problem)

    def has(self, key: str) -> bool:
        """Whether there is an object for the key; it may be damaged."""
        with self._opened() as folder:
            return folder is not None and folder.has(key)

    def is_empty(self) -> bool:
        """Whether the folder has no files, or cannot be read."""
        with self._opened() as folder:
            try:
                return folder is None or next(folder.files(), None) is None
            except OSError:
                return True

    def put(self, key: str, data: bytes) -> None:
        """Store an object; if the folder cannot be written to, warn once and store nothing.

        Files are not synced to disk. A file that a power failure truncates fails its checksum."""
        if not (self.usable and self.writable) or len(data) > MOST_BYTES:
            return
        if not _NAME.fullmatch(key):
            raise ValueError(f"ObjectCache: needed a hexadecimal key, got {key!r}")
        try:
            self._path = self._path or trusted_files.resolved(self.folder)
            trusted_files.make(self._path)
        except Untrusted as why:
            return self._disable(str(why))
        except OSError as error:
            return self._cannot_write(error)
        with self._opened() as folder:
            if folder is None:
                return
            try:
                self._write(folder, key, data)
            except IsADirectoryError:
                return  # a folder has the entry's name and could not be removed
            except OSError as error:
                return self._cannot_write(error)
            self._grown(folder, len(data))

    def _write(self, folder: Folder, key: str, data: bytes) -> None:
        temporary = f"{_TEMPORARY}{os.urandom(16).hex()}"
        try:
            folder.write(temporary, MAGIC + self._checksum(key, data), data)
            folder.replace(temporary, key)
        except PermissionError:
            # Windows does not replace a file that another process is reading; that file will do.
            folder.remove(temporary)
            if not folder.has(key):
                raise
        except BaseException:
            folder.remove(temporary)
            raise

    def remove(self, key: str) -> None:
        """Remove an object."""
        with self._opened() as folder:
            if folder is not None and _NAME.fullmatch(key):
                folder.remove(key)

    # ---- the folder
    @contextmanager
    def _opened(self) -> Iterator[Folder | None]:
        """The folder, checked again; None if it does not exist or cannot be used."""
        folder = None
        if self.usable:
            try:
                self._path = self._path or trusted_files.resolved(self.folder)
                folder = Folder(self._path)
            except Untrusted as why:
                self._disable(str(why))
            except FileNotFoundError:
                self._path = None
            except OSError as error:
                self._disable(f"it cannot be opened ({error.strerror})")
        try:
            yield folder
        finally:
            if folder is not None:
                folder.close()

    def problem(self) -> str:
        """Why the folder cannot be used; empty if it can be, or does not exist yet."""
        try:
            trusted_files.Folder(trusted_files.resolved(self.folder)).close()
        except FileNotFoundError:
            return ""
        except Untrusted as why:
            return str(why)
        except OSError as error:
            return f"it cannot be opened ({error.strerror})"
        return ""

    def _disable(self, problem: str) -> None:
        self.usable = False
        _warn("folder", self.folder,
              f"toile: the folder of compiled kernels {self.folder} is not used: {problem}. Each "
              "process compiles its own kernels (run chmod 700 on the folder, set "
              "TOILE_CACHE_DIR to another one, or set TOILE_CACHE=off)")

    def _cannot_write(self, error: OSError) -> None:
        self.writable = False
        _warn("folder", self.folder,
              f"toile: the folder of compiled kernels {self.folder} cannot be written ({error}); "
              "each process will compile its own kernels (set TOILE_CACHE_DIR, or "
              "TOILE_CACHE=off)")

    def _warn_of_entry(self, key: str, problem: str) -> None:
        _warn("entry", self.folder,
              f"toile: {self.folder / key} in the cache of compiled kernels was not used: {problem}"
              ". It was removed and will be made again; further entries with such problems will be "
              "handled in the same way, without a warning")

    def _grown(self, folder: Folder, nbytes: int) -> None:
        """Check the folder's size at the first write, and after each further 1/32 of the limit."""
        if self.unscanned is not None:
            self.unscanned += nbytes
            if self.unscanned <= self.limit // 32:
                return
        self.unscanned = 0
        self._evict(folder)

    def usage(self) -> tuple[int, int]:
        """The number of entries in the folder, and their bytes."""
        with self._opened() as folder:
            sizes = [found.st_size for _, found in _entries(folder)] if folder else []
        return len(sizes), sum(sizes)

    def clear(self) -> tuple[int, int]:
        """Remove all entries, and files that dead processes left; return the `usage` freed."""
        before = self.usage()
        with self._opened() as folder:
            if folder is not None:
                self._evict(folder, all_entries=True)
        left = self.usage()
        return before[0] - left[0], before[1] - left[1]

    def evict(self) -> None:
        """Above the limit, remove the least recently read files until 4/5 of the limit is used."""
        with self._opened() as folder:
            if folder is not None:
                self._evict(folder)

    def _evict(self, folder: Folder, all_entries: bool = False) -> None:
        now = time.time()
        files: list[tuple[float, int, str]] = []
        try:
            for name, found in folder.files():
                if name.startswith(_TEMPORARY):
                    if now - found.st_mtime > _ABANDONED_S:
                        folder.remove(name)
                elif _NAME.fullmatch(name) and stat.S_ISREG(found.st_mode):
                    files.append((found.st_mtime, found.st_size, name))
        except OSError:
            return
        total = sum(size for _, size, _ in files)
        if total <= self.limit and not all_entries:
            return
        least = -1 if all_entries else self.limit * 4 // 5
        for _, size, name in sorted(files):
            folder.remove(name)
            total -= size
            if total <= least:
                return


def _entries(folder: Folder) -> Iterator[tuple[str, os.stat_result]]:
    """The names and `lstat` results of the files that are entries."""
    for name, found in folder.files():
        if _NAME.fullmatch(name) and stat.S_ISREG(found.st_mode):
            yield name, found


def _warn(of: str, folder: Path, text: str) -> None:
    """Warn once per process about each subject (`of`) and folder."""
    said = (of, str(folder))
    if said not in _warned:
        _warned.add(said)
        warnings.warn(text, CacheWarning, stacklevel=2)


def _folder(environment: Mapping[str, str]) -> Path | None:
    """The folder, in TOILE_CACHE_DIR or where the system keeps caches; None if there is no home."""
    given = environment.get("TOILE_CACHE_DIR")
    if given:
        return Path(given).expanduser() / "kernels"
    try:
        if sys.platform == "win32":
            base = environment.get("LOCALAPPDATA")
            return (Path(base) if base else Path.home() / "AppData/Local") / "toile/Cache/kernels"
        if sys.platform == "darwin":
            return Path.home() / "Library/Caches/toile/kernels"
        base = environment.get("XDG_CACHE_HOME")
        return (Path(base) if base else Path.home() / ".cache") / "toile/kernels"
    except RuntimeError:
        return None


def size_of(text: str, variable: str) -> int:
    """The value of an environment variable such as 1000000, 64K, 512MB or 2 GiB, in bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not found:
        raise ValueError(f"{variable}: needed a size such as 512MB or 1G, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def from_environment(environment: Mapping[str, str] = os.environ,
                     machine: str = "") -> ObjectCache | None:
    """The cache that environment variables describe; None if it is off or has no folder or room."""
    if environment.get("TOILE_CACHE", "").strip().lower() in ("off", "0", "false", "no"):
        return None
    folder = _folder(environment)
    size = environment.get("TOILE_CACHE_SIZE", "").strip()
    limit = size_of(size, "TOILE_CACHE_SIZE") if size else DEFAULT_LIMIT
    return ObjectCache(folder, limit, machine) if folder and limit else None
