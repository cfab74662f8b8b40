"""`restore_checkpoint`, which reads the newest intact checkpoint, completely or in part."""

from __future__ import annotations

import functools
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from toile import errors, io, monitoring, serialization
from toile.core.frozen_dict import FrozenDict, freeze
from toile.engine.annotations import PyTree
from toile.engine.source import here
from toile.training.checkpoints import names as naming
from toile.training.checkpoints import streams

_READ_EVENT = "/jax/checkpoint/read/durations_sec"
_PLACEHOLDER = "//GDAPlaceholder:"  # Flax writes it where an array is spread over processes
_ORBAX_FILES = ("checkpoint", "_METADATA", "manifest.ocdbt")
_logger = logging.getLogger("toile")

Load = Callable[[str], Any]


def restore_checkpoint(
    ckpt_dir: str | os.PathLike[str], target: PyTree | None, step: int | float | None = None,
    prefix: str = "checkpoint_", parallel: bool = True, gda_manager: object = None,
    allow_partial_mpa_restoration: bool = False, orbax_checkpointer: object = None,
    orbax_transforms: object = None, *, partial: bool = False, check_shapes: bool = True,
    check_dtypes: bool = True, checksums: bool = True,
) -> PyTree:
    """Read a tree from a checkpoint that `save_checkpoint` or Flax wrote.

    If the newest checkpoint in a folder is truncated or corrupted, a warning names it, and the
    previous checkpoint is read.

    Args:
        ckpt_dir: path of a checkpoint, or of a folder that contains checkpoints.
        target: tree, such as a new `TrainState`, with the structure of the saved tree; if None,
            nested dicts of NumPy arrays are returned.
        step: step number of the checkpoint to read; if None, the newest checkpoint is read.
        prefix: beginning of the checkpoints' names.
        parallel: whether to read large files in several threads.
        gda_manager: accepted for compatibility with Flax; has no effect.
        allow_partial_mpa_restoration: whether to read a Flax checkpoint whose multiprocess arrays
            are stored in other files. The result contains strings in place of these arrays.
        orbax_checkpointer, orbax_transforms: must be None.
        partial: whether to restore only the arrays that fit, keep all other arrays from `target`,
            and print which arrays are missing, are unexpected or have a different shape.
        check_shapes: whether arrays must have the same shapes as in `target`.
        check_dtypes: whether arrays must have the same dtypes as in `target`.
        checksums: whether to compare the data with the checksums that `save_checkpoint` wrote.

    Returns:
        A copy of `target` with the values from the checkpoint, or `target` itself if there is no
        checkpoint.

    Raises:
        ValueError: there is no checkpoint for `step`, the saved tree and `target` differ in
            structure, or arrays have different shapes or dtypes; the message lists all such arrays.
        toile.errors.CorruptedCheckpointError: no checkpoint can be read.

    Differences:
        Flax does not compare shapes and dtypes, and does not have the parameters `partial` and
        `checksums`.

    >>> import tempfile
    >>> from toile.training import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = checkpoints.save_checkpoint(folder, {"w": jnp.arange(3.0)}, step=7)
    ...     checkpoints.restore_checkpoint(folder, target={"w": jnp.zeros(3)})
    {'w': array([0., 1., 2.], dtype=float32)}
    """
    if orbax_checkpointer is not None or orbax_transforms is not None:
        raise ValueError(
            "restore_checkpoint: needed orbax_checkpointer=None and orbax_transforms=None (toile"
            f" reads checkpoint files itself; leave the arguments out){here()}"
        )
    if partial and target is None:
        raise ValueError(
            f"restore_checkpoint: partial=True needed a target to fill in, got None{here()}"
        )
    monitoring.record_event("/jax/flax/checkpoint/restore")
    start = time.time()
    place = naming.safe_normpath(os.fspath(ckpt_dir))
    found = _find(place, step, prefix, functools.partial(_load, parallel, checksums))
    if found is None:
        return target
    path, state = found
    if not allow_partial_mpa_restoration:
        _refuse_placeholders(path, step, state)
    if target is None:
        restored = state
    elif partial:
        restored, differences = serialization.restore_partially(
            target, state, check_shapes=check_shapes, check_dtypes=check_dtypes
        )
        print(f"restore_checkpoint: {path}: {differences}")
    else:
        restored = serialization.from_state_dict(
            target, state, check_shapes=check_shapes, check_dtypes=check_dtypes
        )
    monitoring.record_event_duration_secs(_READ_EVENT, time.time() - start)
    return restored


def _find(place: str, step: Any, prefix: str, load: Load) -> tuple[str, Any] | None:
    """The path and the state of the requested checkpoint."""
    if step is not None:
        path = naming.checkpoint_path(place, step, prefix)
        if not io.exists(path):
            steps = [os.path.basename(each) for each in naming.all_checkpoints(place, prefix)]
            raise ValueError(
                f"Matching checkpoint not found: {path} (in the directory: {steps}; pass one of "
                f"these steps, or step=None for the latest){here()}"
            )
        return path, load(path)
    if not io.exists(place):
        _logger.info("restore_checkpoint: nothing at %s", place)
        return None
    if not io.isdir(place) or _is_orbax(place):
        return place, load(place)
    return _newest(place, prefix, load)


def _newest(folder: str, prefix: str, load: Load) -> tuple[str, Any] | None:
    """The newest readable checkpoint in a directory."""
    bad: dict[str, str] = {}
    while True:
        # The directory is listed again each time, because another process may write a newer
        # checkpoint and remove the one that was found.
        rest = [path for path in naming.all_checkpoints(folder, prefix) if path not in bad]
        if not rest:
            break
        path = rest[-1]
        try:
            return path, load(path)
        except FileNotFoundError:
            if io.exists(path):
                raise
            if not os.path.islink(path):
                continue  # removed by a saver
            bad[path] = "it is a link to a file that does not exist"
        except errors.CorruptedCheckpointError as error:
            bad[path] = error.reason
        warnings.warn(
            f'restore_checkpoint: skipped the checkpoint "{path}", which cannot be read:'
            f" {bad[path]}",
            stacklevel=4,
        )
    if bad:
        reasons = "".join(f"\n  {os.path.basename(path)}: {why}" for path, why in bad.items())
        raise errors.CorruptedCheckpointError(
            folder, f"no checkpoint in it is readable:{reasons}",
            "restore one of them from a backup",
        )
    _logger.info("restore_checkpoint: no checkpoint %s* in %s", prefix, folder)
    return None


def _is_orbax(path: str) -> bool:
    return any(io.exists(os.path.join(path, name)) for name in _ORBAX_FILES)


def _load(parallel: bool, checksums: bool, path: str) -> Any:
    if _is_orbax(path):
        raise ValueError(
            "restore_checkpoint: needed a msgpack file, got an Orbax checkpoint at"
            f" {path} (load it with Orbax, and save the tree with"
            f" toile.training.checkpoints.save_checkpoint){here()}"
        )
    if io.isdir(path):
        raise errors.CorruptedCheckpointError(path, "it is a directory, not a file")
    return streams.load(path, parallel, checksums)


def _refuse_placeholders(path: str, step: Any, state: Any) -> None:
    """Raise an error if the checkpoint stores arrays in other files."""
    if isinstance(state, Mapping):
        for value in state.values():
            _refuse_placeholders(path, step, value)
    elif isinstance(state, str) and state.startswith(_PLACEHOLDER):
        raise errors.MPACheckpointingRequiredError(path, step)


def convert_pre_linen(params: PyTree) -> PyTree:
    """Rename parameters from Flax's pre-Linen API to the names that Linen uses.

    In the old API, all modules inside a module are numbered together; in Linen, the modules of each
    class are numbered separately.

    Args:
        params: nested dict of parameters.

    Returns:
        A nested dict with the new names.

    >>> from toile.training import checkpoints
    >>> checkpoints.convert_pre_linen({"Conv_0": {}, "Dense_1": {}, "Dense_2": {}})
    {'Conv_0': {}, 'Dense_0': {}, 'Dense_1': {}}
    """
    if not isinstance(params, (dict, FrozenDict)):
        return params
    counts: dict[str, int] = {}
    renamed = {}
    for name in naming.natural_sort(params):
        new = name
        if found := naming.MODULE_NUM_RE.match(name):
            number = counts.get(found[1], 0)
            counts[found[1]] = number + 1
            new = f"{found[1]}_{number}"
        renamed[new] = convert_pre_linen(params[name])
    return freeze(renamed) if isinstance(params, FrozenDict) else renamed
