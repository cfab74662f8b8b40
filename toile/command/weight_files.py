"""Reads and writes files of weights: msgpack, checkpoints, safetensors, npz, torch and ONNX.

A reader returns a nested dict; for a flat file, the dict has one level, and the names are not split
yet. A writer writes to a temporary file and then renames it, so a target file is always complete.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from toile import serialization
from toile.command.failures import Failure, UsageError
from toile.engine.file_reader import guarded
from toile.engine.suggestions import did_you_mean
from toile.exporting import onnx_format
from toile.interop import safetensors, torch_files
from toile.training import checkpoints
from toile.training.array_files import read_entry

PREFIX = "checkpoint_"
_KEEP = 1 << 62  # number of checkpoints to keep, so that none is removed

Tree = dict[str, Any]


@dataclass(frozen=True)
class Format:
    """How weights are read and written, and what a file of this format can hold."""

    name: str
    suffixes: tuple[str, ...]
    nested: bool  # whether a file has dicts in dicts, and values that are not arrays
    read: Callable[[Path, int | None], Tree]
    write: Callable[[Path, Tree, int | None], Path] | None
    holds: Callable[[np.dtype], bool]
    hint: str = ""  # what to do if the format cannot be written

    def left_out(self, path: Path) -> list[str]:
        """The other contents of a file, which are not converted."""
        if self.name != "safetensors":
            return []
        with safetensors.safe_open(path) as file:
            return [f"the metadata {name!r} of {path}" for name in file.metadata()]


# ---- reading
def _read_msgpack(path: Path, step: int | None) -> Tree:
    if path.is_dir():
        raise Failure(f"needed a file, got the folder {path} (--from checkpoint)")
    return _checked(path, checkpoints.restore_checkpoint(path, target=None))


def _read_checkpoint(path: Path, step: int | None) -> Tree:
    tree = checkpoints.restore_checkpoint(path, target=None, step=step)
    if tree is None:
        raise Failure(f"needed a folder with files named {PREFIX}N, got {path}, which has none")
    return _checked(path, tree)


def _read_safetensors(path: Path, step: int | None) -> Tree:
    return safetensors.load_file(path)


def _read_npz(path: Path, step: int | None) -> Tree:
    damage = (zipfile.BadZipFile, zlib.error, NotImplementedError)
    with guarded("npz", "a file of numpy.savez", f" (in {path})", damage):
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
            return {n.removesuffix(".npy"): read_entry(archive, n, "npz") for n in names}


def _read_torch(path: Path, step: int | None) -> Tree:
    return _checked(path, torch_files.load(path))


def _read_onnx(path: Path, step: int | None) -> Tree:
    with guarded("onnx", "an ONNX file", f" (in {path})"):
        return onnx_format.read_model(path.read_bytes())[0].weights


def _checked(path: Path, tree: Any) -> Tree:
    if not isinstance(tree, Mapping):
        raise Failure(f"needed a dict of arrays in {path}, got {type(tree).__name__}")
    return dict(tree)


# ---- writing
@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file that is renamed to `path` when complete, and is removed otherwise."""
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with open(aside, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _write_msgpack(path: Path, tree: Tree, step: int | None) -> Path:
    with replacing(path) as file:
        file.write(serialization.msgpack_serialize(tree, in_place=True))
    return path


def _write_checkpoint(path: Path, tree: Tree, step: int | None) -> Path:
    return Path(checkpoints.save_checkpoint(path, tree, step or 0, keep=_KEEP))


def _write_safetensors(path: Path, tree: Tree, step: int | None) -> Path:
    safetensors.save_file(tree, path)
    return path


def _write_npz(path: Path, tree: Tree, step: int | None) -> Path:
    for name in tree:
        if "\0" in name or name.endswith(".npy") and name.removesuffix(".npy") in tree:
            raise Failure(f"NumPy cannot read {name!r} back from an .npz file (use .safetensors)")
    with replacing(path) as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, x in tree.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(x), allow_pickle=False)
    return path


# ---- what arrays a file can hold
def _msgpack_holds(dtype: np.dtype) -> bool:
    return not dtype.hasobject and dtype.kind not in "VT" or _is_extended(dtype)


def _npz_holds(dtype: np.dtype) -> bool:
    return dtype.kind in "biufcSUMm" and not _is_extended(dtype)


def _safetensors_holds(dtype: np.dtype) -> bool:
    return dtype.newbyteorder("<") in safetensors.DTYPES.values()


def _is_extended(dtype: np.dtype) -> bool:
    """Whether a dtype is from ml_dtypes, such as bfloat16: .npz files store these as bytes."""
    return dtype.type.__module__ == "ml_dtypes"


FORMATS = {f.name: f for f in (
    Format("msgpack", (".msgpack",), True, _read_msgpack, _write_msgpack, _msgpack_holds),
    Format("checkpoint", (), True, _read_checkpoint, _write_checkpoint, _msgpack_holds),
    Format("safetensors", (".safetensors",), False, _read_safetensors, _write_safetensors,
           _safetensors_holds),
    Format("npz", (".npz",), False, _read_npz, _write_npz, _npz_holds),
    Format("torch", (".pt", ".pth", ".bin"), True, _read_torch, None, lambda dtype: False,
           "write .safetensors, which torch reads with safetensors.torch.load_file"),
    Format("onnx", (".onnx",), False, _read_onnx, None, lambda dtype: False,
           "toile export writes functions with their weights"),
)}


def format_of(path: Path, given: str | None, option: str, folder: bool) -> Format:
    """The format that an option names, or that the suffix of a path implies."""
    if given is not None:
        return FORMATS[given]
    for f in FORMATS.values():
        if path.suffix.lower() in f.suffixes:
            return f
    if folder or path.name.startswith(PREFIX) and path.name.removeprefix(PREFIX).isdigit():
        return FORMATS["checkpoint" if folder else "msgpack"]
    known = [s for f in FORMATS.values() for s in f.suffixes]
    near = did_you_mean(path.suffix, known) or f" (or choose the format with {option})"
    raise UsageError(f"needed one of the suffixes {', '.join(known)}, or a folder of checkpoints, "
                     f"got {str(path)!r}{near}")
