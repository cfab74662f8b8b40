"""Names of checkpoints, which consist of a prefix and a number, and how they are sorted.

A directory may contain other files, which are not checkpoints: files that belong to a save in
progress (Flax's `<prefix>tmp` and toile's `.<prefix>tmp-*`), checksums (`.<name>.sums_gda`), parts
stored beside a checkpoint (`*_gda`), Orbax's unfinished directories, and unreadable checkpoints
that were set aside. A checkpoint whose name does not end in a number is sorted before all others
and is never removed.
"""

from __future__ import annotations

import math
import os
import re
import secrets
from collections.abc import Iterable
from typing import Any

import numpy as np

from toile import io
from toile.dtypes import issubdtype
from toile.engine.source import here

SIGNED_FLOAT_RE = re.compile(r"([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)")
UNSIGNED_FLOAT_RE = re.compile(r"[-+]?((?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)")
MODULE_NUM_RE = re.compile(r"(.*)_\d+$")
SCHEME_RE = re.compile(r"^(?P<scheme>[a-z][a-z0-9.+-]+://)?(?P<path>.*)", re.IGNORECASE)
MP_ARRAY_POSTFIX = "_gda"
ASIDE = "unreadable."
_ORBAX_UNFINISHED = ".orbax-checkpoint-tmp"
_TEMPORARY = re.compile(r"(?:tmp|" + SIGNED_FLOAT_RE.pattern + r"\.tmp)")
# Flax omits names with this ending from its lists, whatever their prefix.
_HIDDEN = MP_ARRAY_POSTFIX
_SUMS = ".sums" + _HIDDEN


def natural_sort(file_list: Iterable[str], signed: bool = True) -> list[str]:
    """Sort names by the numbers that they contain.

    Args:
        file_list: the names.
        signed: whether a `+` or `-` before a number is part of the number.

    Returns:
        The sorted names.

    >>> from toile.training import checkpoints
    >>> checkpoints.natural_sort(["file_10", "file_2", "file_1e3"])
    ['file_2', 'file_10', 'file_1e3']
    """
    number = SIGNED_FLOAT_RE if signed else UNSIGNED_FLOAT_RE

    def key(name: str) -> list[Any]:
        parts: list[Any] = number.split(name)
        parts[1::2] = map(float, parts[1::2])  # text and numbers alternate
        return parts

    return sorted(file_list, key=key)


def safe_normpath(path: str) -> str:
    """Remove `.`, `..` and double slashes from a path, but keep a scheme such as `gs://`.

    Args:
        path: the path.

    Returns:
        The normalized path.

    >>> from toile.training import checkpoints
    >>> checkpoints.safe_normpath("gs://bucket/./a//b/../c")
    'gs://bucket/a/c'
    """
    found = SCHEME_RE.match(path)
    assert found is not None  # the pattern matches any text
    return (found["scheme"] or "") + os.path.normpath(found["path"])


def checkpoint_path(ckpt_dir: str, step: Any, prefix: str) -> str:
    """The path of the checkpoint for a step."""
    return os.path.join(ckpt_dir, f"{prefix}{step}")


def checked_step(step: Any, caller: str) -> Any:
    """Return the step as a number for a file name, or raise an error if it cannot be sorted."""
    number = step
    if hasattr(step, "dtype") and hasattr(step, "shape"):
        kinds = (np.integer, np.floating)
        if step.shape != () or not any(issubdtype(step.dtype, kind) for kind in kinds):
            got = f"an array of {step.dtype}{list(step.shape)}"
            hint = " (of a replicated state: step[0])" if step.shape else ""
            raise TypeError(f"{caller}: needed step to be one number, got {got}{hint}{here()}")
        number = np.asarray(step)[()]
    elif isinstance(step, bool) or not isinstance(step, (int, float)):
        raise TypeError(
            f"{caller}: needed step to be an int or a float, got {step!r} of type"
            f" {type(step).__name__} (other names go into prefix=){here()}"
        )
    if not math.isfinite(number):
        raise ValueError(f"{caller}: needed step to be a finite number, got {number}{here()}")
    return number


def step_of(path: str, prefix: str) -> int | float | None:
    """The number after the prefix of a name; None if anything else follows the prefix."""
    rest = os.path.basename(path)[len(os.path.basename(prefix)) :]
    if not SIGNED_FLOAT_RE.fullmatch(rest):
        return None
    if rest.lstrip("+-").isdecimal():
        return int(rest)  # exact, however large
    return float(rest) if math.isfinite(float(rest)) else None


def is_temporary(name: str, start: str) -> bool:
    """Whether a file belongs to a running or interrupted save, of toile or Flax."""
    if is_own_temporary(name, start):
        return True
    return name.startswith(start) and _TEMPORARY.fullmatch(name[len(start) :]) is not None


def is_own_temporary(name: str, start: str) -> bool:
    """Whether a file is a temporary file that toile wrote."""
    return name.startswith(f".{start}tmp-")


def temporary_path(folder: str, start: str) -> str:
    """A new, unpredictable path for a temporary file."""
    return os.path.join(folder, f".{start}tmp-{secrets.token_hex(8)}{_HIDDEN}")


def sums_path(path: str) -> str:
    """The path of the checksums of a checkpoint."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}{_SUMS}")


def summed_name(name: str, start: str) -> str | None:
    """The name of the checkpoint that a file of checksums belongs to; None for other files."""
    if not name.startswith(f".{start}") or not name.endswith(_SUMS):
        return None
    return name[1 : -len(_SUMS)]


def all_checkpoints(ckpt_dir: str | os.PathLike[str], prefix: str) -> list[str]:
    """The paths of the checkpoints in a directory, in the order of their steps.

    Names without a step, such as `<prefix>nan` and `<prefix>best`, come first, so that they are
    never considered newer than a checkpoint with a step.
    """
    folder, start = os.path.split(os.path.join(os.fspath(ckpt_dir), prefix))
    try:
        names = io.listdir(folder) if io.isdir(folder) else []
    except FileNotFoundError:
        return []
    found = [name.rstrip("/") for name in names]
    paths = [os.path.join(folder, name) for name in found if _is_checkpoint(name, start)]
    others = [path for path in paths if step_of(path, prefix) is None]
    return natural_sort(sorted(others)) + _by_step(paths, prefix)


def numbered_checkpoints(ckpt_dir: str | os.PathLike[str], prefix: str) -> list[str]:
    """The paths of the checkpoints whose names end in a step, in the order of their steps."""
    return _by_step(all_checkpoints(ckpt_dir, prefix), prefix)


def _by_step(paths: list[str], prefix: str) -> list[str]:
    steps = ((step_of(path, prefix), path) for path in paths)
    return [path for _, path in sorted((n, path) for n, path in steps if n is not None)]


def _is_checkpoint(name: str, start: str) -> bool:
    if not name.startswith(start) or name.endswith(MP_ARRAY_POSTFIX):
        return False
    if is_temporary(name, start) or name.startswith(ASIDE):
        return False
    return _ORBAX_UNFINISHED not in name


def latest_checkpoint(ckpt_dir: str | os.PathLike[str], prefix: str = "checkpoint_") -> str | None:
    """Find the checkpoint with the highest step number in its name.

    Args:
        ckpt_dir: folder that contains the checkpoints.
        prefix: beginning of the checkpoints' names.

    Returns:
        The path of the checkpoint; None if there is no checkpoint.

    >>> import os, tempfile
    >>> from toile.training import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in (2, 10):
    ...         path = checkpoints.save_checkpoint(folder, [1.0], step, keep=5)
    ...     os.path.basename(checkpoints.latest_checkpoint(folder))
    'checkpoint_10'
    """
    found = all_checkpoints(ckpt_dir, prefix)
    return found[-1] if found else None


def available_steps(
    ckpt_dir: str | os.PathLike[str], prefix: str = "checkpoint_", step_type: type = int
) -> list[int | float]:
    """List the step numbers of the checkpoints in a folder.

    Args:
        ckpt_dir: folder that contains the checkpoints.
        prefix: beginning of the checkpoints' names.
        step_type: type of the step numbers: int or float.

    Returns:
        A sorted list of step numbers.

    >>> import tempfile
    >>> from toile.training import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in (2, 10):
    ...         path = checkpoints.save_checkpoint(folder, [1.0], step, keep=5)
    ...     checkpoints.available_steps(folder)
    [2, 10]
    """
    start = len(os.path.basename(prefix))
    found = numbered_checkpoints(ckpt_dir, prefix)
    return [step_type(os.path.basename(path)[start:]) for path in found]
