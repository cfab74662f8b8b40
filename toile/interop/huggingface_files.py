"""The files in a folder of a Hugging Face model: weights in one or several parts, and JSON files.

A folder contains either one file of weights or several files and an index, which maps the name of
each tensor to the name of its file. Everything that is read is checked, because people download
these folders from strangers: an index can name only files in its own folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from toile.engine.file_reader import brief, guarded, unreadable
from toile.engine.source import here
from toile.interop import safetensors, torch_files

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
TORCH_WEIGHTS = "pytorch_model.bin"
TORCH_INDEX = f"{TORCH_WEIGHTS}.index.json"
_LARGEST_JSON = 100_000_000  # bytes


class Part(NamedTuple):
    """A tensor that is to be written: its name and shape, its size in bytes, and its group.

    The tensors of a group are computed together, so they are written to the same file."""

    name: str
    size: int
    group: int


def opened(folder: str | os.PathLike[str], who: str) -> Path:
    """Return the path of a folder, after checking that it is one."""
    path = Path(folder)
    if path.is_dir():
        return path
    name = os.fspath(folder)
    raise FileNotFoundError(
        f"huggingface.{who}: needed a folder that contains a model, got {name!r}, which is not a "
        f"folder (toile downloads nothing; run: hf download {name} --local-dir FOLDER){here()}"
    )


def read_json(path: Path, who: str) -> dict[str, Any]:
    """Read a JSON object from a file."""
    reader = f"huggingface.{who}"
    size = path.stat().st_size
    if size > _LARGEST_JSON:
        raise unreadable(reader, f"at most {_LARGEST_JSON} bytes in {path}", f"{size} bytes")
    text = path.read_bytes()
    with guarded(reader, "a file of JSON", f" ({path})", also=(RecursionError,)):
        found = json.loads(text.decode())
    if not isinstance(found, dict):
        raise unreadable(reader, f"a JSON object in {path}", brief(found))
    return found


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a file, which is replaced only when the new file is complete."""
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    aside = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def read_tensors(folder: Path, who: str) -> dict[str, np.ndarray]:
    """Read the tensors of the first kind of weights that the folder contains."""
    if (folder / WEIGHTS).is_file():
        return safetensors.load_file(folder / WEIGHTS, mmap=True)
    if (folder / INDEX).is_file():
        return _sharded(folder, INDEX, who)
    if (folder / TORCH_WEIGHTS).is_file():
        return _of_torch(folder / TORCH_WEIGHTS, who)
    if (folder / TORCH_INDEX).is_file():
        return _sharded(folder, TORCH_INDEX, who)
    have = ", ".join(sorted(p.name for p in folder.iterdir())[:12]) or "no files"
    raise FileNotFoundError(
        f"huggingface.{who}: needed {WEIGHTS}, {INDEX}, {TORCH_WEIGHTS} or {TORCH_INDEX} in "
        f"{folder}, got {have} (download the weights too, or convert weights of another format "
        f"with transformers' save_pretrained){here()}"
    )


def _of_torch(path: Path, who: str) -> dict[str, np.ndarray]:
    found = torch_files.load(path)
    if isinstance(found, dict) and all(isinstance(x, np.ndarray) for x in found.values()):
        return {str(name): x for name, x in found.items()}
    raise unreadable(
        f"huggingface.{who}", f"a state dict, a dict of tensors, in {path}", brief(found),
        "in torch, save model.state_dict()",
    )  # fmt: skip


def _sharded(folder: Path, index: str, who: str) -> dict[str, np.ndarray]:
    """Read the tensors that an index lists."""
    reader = f"huggingface.{who}"
    files = read_json(folder / index, who).get("weight_map")
    if not isinstance(files, dict) or not all(_is_file_name(name) for name in files.values()):
        got = brief(files) if not isinstance(files, dict) else "other values"
        needed = f"a dict that maps tensors to names of files as weight_map in {folder / index}"
        raise unreadable(reader, needed, got)
    out: dict[str, np.ndarray] = {}
    for file in dict.fromkeys(files.values()):
        path = folder / file
        if not path.is_file():
            raise FileNotFoundError(
                f"{reader}: needed all files that {index} lists, got no {path} (download it)"
                f"{here()}"
            )
        as_torch = index == TORCH_INDEX
        found = _of_torch(path, who) if as_torch else safetensors.load_file(path, mmap=True)
        listed = [name for name, place in files.items() if place == file]
        lacking = [name for name in listed if name not in found]
        if lacking:
            raise unreadable(
                reader, f"the tensors that {index} lists in {path}",
                f"a file without {', '.join(map(brief, lacking[:4]))}", "download the file again",
            )  # fmt: skip
        out |= {name: found[name] for name in listed}
    return out


def _is_file_name(name: Any) -> bool:
    return type(name) is str and name not in ("", ".", "..") and not set(name) & set("/\\\0:")


def shards(parts: Iterable[Part], most: int) -> Iterator[list[Part]]:
    """Divide tensors among files of at most `most` bytes; a larger group gets its own file."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.group, []).append(part)
    file: list[Part] = []
    for group in groups.values():
        if file and sum(p.size for p in [*file, *group]) > most:
            yield file
            file = []
        file += group
    yield file


def write_tensors(folder: Path, files: list[list[Part]], tensors: Any) -> None:
    """Write tensors to files, with an index if there are several files.

    `tensors(parts)` returns the arrays of one file by name. Files of weights that the folder
    contained before and that are not overwritten are removed at the end."""
    count = len(files)
    names = [WEIGHTS] if count == 1 else [_shard_name(i, count) for i in range(1, count + 1)]
    for name, parts in zip(names, files, strict=True):
        safetensors.save_file(tensors(parts), folder / name, {"format": "pt"})
    if count > 1:
        places = {p.name: name for name, parts in zip(names, files, strict=True) for p in parts}
        size = sum(p.size for parts in files for p in parts)
        write_json(folder / INDEX, {"metadata": {"total_size": size}, "weight_map": places})
        names.append(INDEX)
    stale = {folder / WEIGHTS, folder / INDEX, *folder.glob("model-*-of-*.safetensors")}
    for path in stale - {folder / name for name in names}:
        path.unlink(missing_ok=True)


def _shard_name(i: int, count: int) -> str:
    return f"model-{i:05}-of-{count:05}.safetensors"
