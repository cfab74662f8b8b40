"""How checkpoints are named: a prefix and a number, and how such names are sorted.

A directory may hold other files. Those that belong to a save under way (`<prefix>tmp`), parts
kept beside a checkpoint (`*_gda`), Orbax's unfinished directories and checkpoints set aside as
unreadable are not checkpoints, whatever the prefix.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from toile import io

SIGNED_FLOAT_RE = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)")
UNSIGNED_FLOAT_RE = re.compile(r"[-+]?((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)")
MODULE_NUM_RE = re.compile(r"(.*)_\d+$")
SCHEME_RE = re.compile(r"^(?P<scheme>[a-z][a-z0-9.+-]+://)?(?P<path>.*)", re.IGNORECASE)
MP_ARRAY_POSTFIX = "_gda"
ASIDE = "unreadable."
_ORBAX_UNFINISHED = ".orbax-checkpoint-tmp"


def natural_sort(file_list: Iterable[str], signed: bool = True) -> list[str]:
    """Names in the order of the numbers in them; with `signed`, a sign belongs to its number.

    Example::

        >>> natural_sort(["file_10", "file_2", "file_1e3"])
        ['file_2', 'file_10', 'file_1e3']
    """
    number = SIGNED_FLOAT_RE if signed else UNSIGNED_FLOAT_RE

    def key(name: str) -> list[Any]:
        parts: list[Any] = number.split(name)
        parts[1::2] = map(float, parts[1::2])  # text and numbers take turns
        return parts

    return sorted(file_list, key=key)


def safe_normpath(path: str) -> str:
    """A path without `.`, `..` and double slashes; a scheme such as gs:// stays in front."""
    found = SCHEME_RE.match(path)
    assert found is not None  # the pattern matches any text
    return (found["scheme"] or "") + os.path.normpath(found["path"])


def checkpoint_path(ckpt_dir: str, step: Any, prefix: str) -> str:
    """Where the checkpoint of a step lies."""
    return os.path.join(ckpt_dir, f"{prefix}{step}")


def path_step(path: str) -> float | None:
    """The last number in a name."""
    numbers = SIGNED_FLOAT_RE.findall(path)
    return float(numbers[-1]) if numbers else None


def all_checkpoints(ckpt_dir: str | os.PathLike[str], prefix: str) -> list[str]:
    """The paths of the checkpoints in a directory, in the order of their steps."""
    folder, start = os.path.split(os.path.join(os.fspath(ckpt_dir), prefix))
    try:
        names = io.listdir(folder) if io.isdir(folder) else []
    except FileNotFoundError:
        return []
    found = [name.rstrip("/") for name in names]
    return natural_sort(os.path.join(folder, x) for x in found if _is_checkpoint(x, start))


def _is_checkpoint(name: str, start: str) -> bool:
    if not name.startswith(start) or name == f"{start}tmp" or name.endswith(MP_ARRAY_POSTFIX):
        return False
    return _ORBAX_UNFINISHED not in name and not name.startswith((ASIDE, f".{start}tmp-"))


def latest_checkpoint(ckpt_dir: str | os.PathLike[str], prefix: str = "checkpoint_") -> str | None:
    """The path of the checkpoint of the highest step, judged by its name; None where none is."""
    found = all_checkpoints(ckpt_dir, prefix)
    return found[-1] if found else None


def available_steps(
    ckpt_dir: str | os.PathLike[str], prefix: str = "checkpoint_", step_type: type = int
) -> list[int | float]:
    """The steps of the checkpoints in a directory, sorted, as `step_type`."""
    start = len(os.path.basename(prefix))
    found = all_checkpoints(ckpt_dir, prefix)
    return [step_type(os.path.basename(path)[start:]) for path in found]
