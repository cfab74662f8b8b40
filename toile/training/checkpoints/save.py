"""`save_checkpoint`, which writes one file per step, with Flax's file names and format."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
import warnings
from typing import Any

from toile import errors, io, monitoring, serialization
from toile.api.devices import process_count, process_index
from toile.engine.annotations import PyTree
from toile.engine.source import describe, here
from toile.engine.trace import Array
from toile.experimental.multihost_utils import sync_global_devices
from toile.serialization import stream_encoder
from toile.training.checkpoints import files, streams
from toile.training.checkpoints import names as naming
from toile.training.checkpoints import sums as sidecar
from toile.training.checkpoints.asynchronous import AsyncManager
from toile.tree_util import tree_leaves

_WRITE_EVENT = "/jax/checkpoint/write/durations_sec"
_logger = logging.getLogger("toile")


@dataclasses.dataclass(frozen=True)
class _Save:
    """A checkpoint to write, and the rules for removing others."""

    folder: str
    prefix: str
    step: Any
    keep: int
    overwrite: bool
    keep_every_n_steps: int | None
    checksums: bool
    show: bool  # whether to show a progress bar, if there is much to write

    @property
    def path(self) -> str:
        return naming.checkpoint_path(self.folder, self.step, self.prefix)

    @property
    def start(self) -> str:
        return os.path.basename(self.prefix)

    def others(self) -> list[str]:
        return naming.numbered_checkpoints(self.folder, self.prefix)


def save_checkpoint(
    ckpt_dir: str | os.PathLike[str], target: PyTree, step: int | float,
    prefix: str = "checkpoint_", keep: int = 1, overwrite: bool = False,
    keep_every_n_steps: int | None = None, async_manager: AsyncManager | None = None,
    orbax_checkpointer: object = None, *, checksums: bool = True,
) -> str:
    """Write a tree to a file, and remove older checkpoints.

    The file is written under a temporary name, flushed to disk and renamed, and only then are other
    checkpoints removed. Therefore, there is always a complete checkpoint, even after an
    interruption. Arrays are not copied in memory before they are written, unless `async_manager` is
    given.

    Args:
        ckpt_dir: folder for the checkpoints; the folder is created if it does not exist.
        target: tree to save, such as a `TrainState`.
        step: step number; the file's path is `<ckpt_dir>/<prefix><step>`.
        prefix: beginning of the file's name.
        keep: number of checkpoints to keep; the newest are kept.
        overwrite: whether to replace an existing checkpoint for this step and remove the
            checkpoints for later steps.
        keep_every_n_steps: interval, in steps, at which older checkpoints are also kept; if None,
            no additional checkpoints are kept.
        async_manager: an `AsyncManager`, which writes the file in a background thread, with the
            arrays' values at the time of the call; if None, the file is written before the function
            returns.
        orbax_checkpointer: must be None.
        checksums: whether to write a small file beside the checkpoint, which lets
            `restore_checkpoint` detect damage.

    Returns:
        The path of the checkpoint.

    Raises:
        toile.errors.InvalidCheckpointError: there is a checkpoint for this or a later step, and
            `overwrite` is False. A checkpoint that cannot be read causes no error; it is renamed.

    >>> import tempfile
    >>> from toile.training import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = checkpoints.save_checkpoint(folder, {"w": jnp.arange(3.0)}, step=7)
    ...     checkpoints.restore_checkpoint(path, target=None)
    {'w': array([0., 1., 2.], dtype=float32)}
    """
    _refuse_orbax("save_checkpoint", orbax_checkpointer)
    if not isinstance(ckpt_dir, (str, os.PathLike)):
        raise TypeError(
            "save_checkpoint: expected str, bytes or os.PathLike object for the folder, got "
            f"{describe(ckpt_dir)} (call save_checkpoint(folder, target, step)){here()}"
        )
    step = naming.checked_step(step, "save_checkpoint")
    monitoring.record_event("/jax/flax/checkpoint/save")
    start = time.time()
    if async_manager is not None:
        async_manager.wait_previous_save()
    save = _Save(
        naming.safe_normpath(os.fspath(ckpt_dir)), prefix, step, keep, overwrite,
        keep_every_n_steps, checksums, show=async_manager is None,
    )  # fmt: skip
    if any(isinstance(x, Array) and not x.is_fully_addressable for x in tree_leaves(target)):
        raise errors.MPACheckpointingRequiredError(save.path, step)
    if not overwrite:
        _refuse_outdated(save)  # raised here, not in the thread
    state = serialization.to_state_dict(target)
    parts = stream_encoder.encode(state, serialization.MAX_CHUNK_SIZE)
    task = functools.partial(_write, save, parts)
    if async_manager is not None:
        for part in parts:
            if isinstance(part, stream_encoder.Piece):
                part.keep_now()
        async_manager.save_async(task)
    else:
        task()
    monitoring.record_event_duration_secs(_WRITE_EVENT, time.time() - start)
    return save.path


def save_checkpoint_multiprocess(
    ckpt_dir: str | os.PathLike[str], target: PyTree, step: int | float,
    prefix: str = "checkpoint_", keep: int = 1, overwrite: bool = False,
    keep_every_n_steps: int | None = None, async_manager: AsyncManager | None = None,
    gda_manager: object = None, orbax_checkpointer: object = None, *, checksums: bool = True,
) -> str:
    """Write a tree to a file in a program that consists of several processes.

    All processes must call this function. The first process writes the file. Without an
    `async_manager`, the other processes wait until the file has been written.

    Args:
        ckpt_dir: folder for the checkpoints; the folder is created if it does not exist.
        target: tree to save; the first process must be able to read every array completely.
        step: step number; the file's path is `<ckpt_dir>/<prefix><step>`.
        prefix: beginning of the file's name.
        keep: number of checkpoints to keep; the newest are kept.
        overwrite: whether to replace an existing checkpoint for this step and remove the
            checkpoints for later steps.
        keep_every_n_steps: interval, in steps, at which older checkpoints are also kept; if None,
            no additional checkpoints are kept.
        async_manager: an `AsyncManager`, which writes the file in a background thread; if None, the
            file is written before the function returns.
        gda_manager: accepted for compatibility with Flax; has no effect.
        orbax_checkpointer: must be None.
        checksums: whether to write a small file beside the checkpoint, which lets
            `restore_checkpoint` detect damage.

    Returns:
        The path of the checkpoint.

    Raises:
        toile.errors.InvalidCheckpointError: there is a checkpoint for this or a later step, and
            `overwrite` is False.

    >>> import os, tempfile
    >>> from toile.training import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = checkpoints.save_checkpoint_multiprocess(folder, {"w": jnp.ones(2)}, step=7)
    >>> os.path.basename(path)
    'checkpoint_7'
    """
    _refuse_orbax("save_checkpoint_multiprocess", orbax_checkpointer)
    step = naming.checked_step(step, "save_checkpoint_multiprocess")
    if process_count() == 1 or process_index() == 0:
        path = save_checkpoint(
            ckpt_dir, target, step, prefix, keep, overwrite, keep_every_n_steps, async_manager,
            checksums=checksums,
        )  # fmt: skip
    else:
        folder = naming.safe_normpath(os.fspath(ckpt_dir))
        path = naming.checkpoint_path(folder, step, prefix)
    if async_manager is None:
        sync_global_devices(f"save_checkpoint {path}")
    return path


def _refuse_orbax(caller: str, checkpointer: Any) -> None:
    if checkpointer is not None:
        raise ValueError(
            f"{caller}: needed orbax_checkpointer=None, got {type(checkpointer).__name__} (toile"
            f" writes and reads checkpoint files itself; leave the argument out){here()}"
        )


def _write(save: _Save, parts: list[bytes | stream_encoder.Piece]) -> None:
    """Write the file, then remove the checkpoints that are no longer needed."""
    monitoring.record_event("/jax/flax/checkpoint/save_main_ckpt_task")
    folder = os.path.dirname(save.path)
    files.make_folder(folder)
    with files.directory_lock(folder) as locked:
        if not save.overwrite:
            for path in _refuse_outdated(save):  # again: now no other process is saving
                _set_aside(path)
        if locked:
            files.clean_up(folder, save.start)  # first: this save may need the space
        label = f"save {os.path.basename(save.path)}"
        with (
            streams.bar(label, stream_encoder.total_bytes(parts), save.show) as advance,
            files.PendingFile(folder, save.start) as pending,
        ):
            sums = streams.write(pending, parts, save.checksums, advance)
            pending.sync()
            _put(save, folder, pending, sums)
        files.sync_folder(folder)
        _logger.info("saved checkpoint %s", save.path)
        for path in _superfluous(save):
            _logger.info("removing checkpoint %s", path)
            for part in (path + naming.MP_ARRAY_POSTFIX, path, naming.sums_path(path)):
                if files.is_there(part):
                    files.remove(part)


def _put(save: _Save, folder: str, pending: files.PendingFile, sums: sidecar.Sums | None) -> None:
    """Rename the file and its checksums, so that checksums never belong to another file."""
    replaces = io.exists(save.path)
    if files.is_there(naming.sums_path(save.path)):
        files.remove(naming.sums_path(save.path))
    if not replaces:
        _write_sums(save, folder, pending, sums)
    with files.moved_away(save.path, folder, save.start):
        pending.put(save.path)
    if replaces:
        _write_sums(save, folder, pending, sums)


def _write_sums(
    save: _Save, folder: str, pending: files.PendingFile, sums: sidecar.Sums | None
) -> None:
    if sums is None:
        return
    try:
        sidecar.write(sums, save.path, pending.inode, folder, save.start)
    except OSError as error:  # a checkpoint without checksums is better than none
        warnings.warn(f"save_checkpoint: no checksums for {save.path}: {error}", stacklevel=2)


def _refuse_outdated(save: _Save) -> list[str]:
    """Raise an error if there is a checkpoint for this or a later step; return unreadable ones."""
    step = naming.step_of(save.path, save.prefix)
    assert step is not None  # it was checked
    steps = {path: naming.step_of(path, save.prefix) for path in save.others()}
    later = [path for path, n in steps.items() if path == save.path or (n is not None and n > step)]
    later = [path for path in later if files.is_there(path)]
    if any(_is_readable(path) for path in later):
        raise errors.InvalidCheckpointError(save.path, save.step)
    return later


def _is_readable(path: str) -> bool:
    if io.isdir(path):
        return bool(io.listdir(path))  # not written by toile, so assumed readable
    try:
        streams.verify(path)
    except (errors.CorruptedCheckpointError, FileNotFoundError):
        return False
    return True


def _set_aside(path: str) -> None:
    """Rename a file that cannot be read, so that it is no longer treated as a checkpoint."""
    folder, name = os.path.split(path)
    aside = os.path.join(folder, naming.ASIDE + name)
    if not files.is_there(path):
        return
    files.remove(aside)
    io.rename(path, aside)
    if io.exists(naming.sums_path(path)):
        io.rename(naming.sums_path(path), naming.sums_path(aside), overwrite=True)
    warnings.warn(f"save_checkpoint: {path} could not be read and is now {aside}", stacklevel=2)


def _superfluous(save: _Save) -> list[str]:
    """The checkpoints to remove after this one has been written."""
    found = save.others()
    out = []
    if save.overwrite and save.path in found:
        cut = found.index(save.path) + 1
        found, out = found[:cut], found[cut:]
    if len(found) <= save.keep:
        return out
    last_kept = -float("inf")
    for path in found[: -save.keep]:
        every = save.keep_every_n_steps
        step = naming.step_of(path, save.prefix) if every else None
        if step is not None and every and step - last_kept >= every:
            last_kept = step
        else:
            out.append(path)
    return out
