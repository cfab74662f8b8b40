"""Compiled kernels on disk, one file each, shared by processes.

A file is `magic | checksum | object`, written aside and renamed into place, so that readers see all
of it or nothing; what fails the checksum counts as absent and is written again. When the folder
outgrows its limit the files that were not read for longest go first. TOILE_CACHE=off switches it
off, TOILE_CACHE_DIR says where it is and TOILE_CACHE_SIZE how large (bytes, or such as 512MB).
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

MAGIC = b"toile-1\n"
DEFAULT_LIMIT = 512 << 20
_CHECKSUM_BYTES = 16
_ABANDONED_S = 3600  # files being written that are older than this belong to processes that died
_FRESH_S = 3600  # a file's time of use is kept to this precision
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TEMPORARY = ".new-"


def _checksum(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECKSUM_BYTES).digest()


class ObjectCache:
    """Objects by key (a hexadecimal digest) in one folder."""

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT):
        self.folder = folder
        self.limit = limit
        self.writable = True
        self.unscanned: int | None = None  # bytes written since the folder was last measured

    def get(self, key: str) -> bytes | None:
        """The object, or None where there is none or it is damaged."""
        path = self.folder / key
        try:
            with open(path, "rb") as file:
                content = file.read()
                used = os.fstat(file.fileno()).st_mtime
        except OSError:
            return None
        head = len(MAGIC) + _CHECKSUM_BYTES
        data = content[head:]
        if content[: len(MAGIC)] != MAGIC or content[len(MAGIC) : head] != _checksum(data):
            self.remove(key)
            return None
        if time.time() - used > _FRESH_S:
            try:
                os.utime(path)
            except OSError:
                pass  # read-only: its age then counts from its making
        return data

    def has(self, key: str) -> bool:
        """Whether there is an object, which may be damaged."""
        return os.path.exists(self.folder / key)

    def is_empty(self) -> bool:
        """Whether there is nothing at all."""
        try:
            with os.scandir(self.folder) as found:
                return next(found, None) is None
        except OSError:
            return True

    def put(self, key: str, data: bytes) -> None:
        """Keep an object; where the folder cannot be written, warn once and go on without."""
        if not self.writable:
            return
        temporary = self.folder / f"{_TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(MAGIC + _checksum(data) + data)
                self._move(temporary, self.folder / key)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            self.writable = False
            warnings.warn(
                f"toile: the folder of compiled kernels {self.folder} cannot be written ({error}); "
                "kernels will be compiled anew by each process (set TOILE_CACHE_DIR, or "
                "TOILE_CACHE=off)",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self._grown(len(data))

    @staticmethod
    def _move(temporary: Path, path: Path) -> None:
        try:
            os.replace(temporary, path)
        except PermissionError:
            # Windows refuses while another process reads the same object: that one serves.
            if not path.exists():
                raise
            temporary.unlink(missing_ok=True)

    def remove(self, key: str) -> None:
        """Forget an object."""
        try:
            (self.folder / key).unlink(missing_ok=True)
        except OSError:
            pass  # a later `put` writes over it, or warns

    def _grown(self, nbytes: int) -> None:
        """Measure the folder at the first write, then whenever 1/32 of the limit was written."""
        if self.unscanned is not None:
            self.unscanned += nbytes
            if self.unscanned <= self.limit // 32:
                return
        self.unscanned = 0
        self.evict()

    def evict(self) -> None:
        """Above the limit, remove what was not read for longest until 4/5 of it is left."""
        now = time.time()
        files: list[tuple[float, int, str]] = []
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    try:
                        stat = entry.stat()
                    except OSError:
                        continue  # another process removed it
                    if not entry.name.startswith(_TEMPORARY):
                        files.append((stat.st_mtime, stat.st_size, entry.name))
                    elif now - stat.st_mtime > _ABANDONED_S:
                        self.remove(entry.name)
        except OSError:
            return
        total = sum(size for _, size, _ in files)
        if total <= self.limit:
            return
        for _, size, name in sorted(files):
            self.remove(name)
            total -= size
            if total <= self.limit * 4 // 5:
                return


def _folder(environment: Mapping[str, str]) -> Path | None:
    """The user's folder for caches, as the system has it; None where there is no home."""
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


def _limit(text: str) -> int:
    """Bytes from 1000000, 64K, 512MB, 2 GiB."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(?:I?B)?\s*", text.upper())
    if not found:
        raise ValueError(f"TOILE_CACHE_SIZE: needed a size such as 512MB, got {text!r}")
    return int(float(found[1]) * _UNITS[found[2]])


def from_environment(environment: Mapping[str, str] = os.environ) -> ObjectCache | None:
    """The cache that the environment asks for; None when it is off."""
    if environment.get("TOILE_CACHE", "").strip().lower() in ("off", "0", "false", "no"):
        return None
    folder = _folder(environment)
    size = environment.get("TOILE_CACHE_SIZE", "").strip()
    limit = _limit(size) if size else DEFAULT_LIMIT
    return ObjectCache(folder, limit) if folder and limit else None
