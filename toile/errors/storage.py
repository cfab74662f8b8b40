"""Errors about checkpoints, files and cursors."""

from __future__ import annotations

from typing import Any

from toile.errors.base import FlaxError


class InvalidCheckpointError(FlaxError, ValueError):
    """A checkpoint cannot be saved, because a checkpoint for the same or a later step exists.

    The error is also a ValueError, because Flax raises a ValueError in this case when it saves with
    Orbax.

    Broken::

        import tempfile
        from toile.training import checkpoints

        with tempfile.TemporaryDirectory() as folder:
            checkpoints.save_checkpoint(folder, {"w": jnp.ones(3)}, step=2)
            checkpoints.save_checkpoint(folder, {"w": jnp.ones(3)}, step=1)

    Repaired::

        import tempfile
        from toile.training import checkpoints

        with tempfile.TemporaryDirectory() as folder:
            checkpoints.save_checkpoint(folder, {"w": jnp.ones(3)}, step=2)
            checkpoints.save_checkpoint(folder, {"w": jnp.ones(3)}, step=1, overwrite=True)
    """

    def __init__(self, path: Any, step: Any) -> None:
        super().__init__(
            f'Trying to save an outdated checkpoint at step: "{step}" and path: "{path}".',
            "save under a later step, or pass overwrite=True, which removes the later checkpoints",
        )


class CorruptedCheckpointError(FlaxError, ValueError):
    """A checkpoint file is truncated, or it is not a checkpoint.

    Broken::

        import os, tempfile
        from toile.training import checkpoints

        with tempfile.TemporaryDirectory() as folder:
            path = checkpoints.save_checkpoint(folder, {"w": jnp.ones(3)}, step=1)
            os.truncate(path, 20)
            checkpoints.restore_checkpoint(path, None)

    Repaired::

        import os, tempfile, warnings
        from toile.training import checkpoints

        with tempfile.TemporaryDirectory() as folder:
            for step in (1, 2):
                path = checkpoints.save_checkpoint(folder, {"w": jnp.ones(3)}, step, keep=2)
            os.truncate(path, 20)
            with warnings.catch_warnings(action="ignore"):  # it names the file that was skipped
                checkpoints.restore_checkpoint(folder, None)
    """

    def __init__(self, path: Any, reason: Any, fix: str = "") -> None:
        self.reason = str(reason)
        super().__init__(
            f'The checkpoint "{path}" cannot be read: {reason}.',
            fix
            or "restore from the directory, which finds the newest checkpoint that can be read, or"
            " name an earlier step",
        )


class MPACheckpointingRequiredError(FlaxError):
    """An array that spans several processes was saved with a function for single-process arrays.

    A single-process program does not raise this error. Use `save_checkpoint_multiprocess` to save
    such an array.
    """

    def __init__(self, path: Any, step: Any) -> None:
        super().__init__(
            f'Checkpoint failed at step: "{step}" and path: "{path}": Target contains a'
            " multiprocess array should be saved/restored with a GlobalAsyncCheckpointManager.",
            "call save_checkpoint_multiprocess on every process",
        )


class MPARestoreTargetRequiredError(FlaxError):
    """An array that spans several processes was restored without a target that has its sharding.

    A single-process program does not raise this error. Pass a `target` whose arrays have the
    shardings that the restored arrays should have.
    """

    def __init__(self, path: Any, step: Any, key: Any = None) -> None:
        at = f" This error fired when trying to restore array at {key}." if key else ""
        super().__init__(
            f'Restore checkpoint failed at step: "{step}" and path: "{path}": Checkpoints'
            " containing a multiprocess array need to be restored with a target with pre-created"
            " arrays. If you cannot provide a full valid target, consider"
            f" ``allow_partial_mpa_restoration=True``.{at}",
            "pass such a target, or leave those arrays out",
        )


class MPARestoreDataCorruptedError(FlaxError):
    """The saved parts of an array that spans several processes are incomplete.

    A single-process program does not raise this error. Restore the checkpoint of an earlier step.
    """

    def __init__(self, step: Any, path: Any) -> None:
        super().__init__(
            f'Restore checkpoint failed at step: "{step}" on multiprocess array at  "{path}": No'
            ' "commit_success.txt" found on this "_gda" directory. Was its save halted before'
            " completion?",
            "restore an earlier step",
        )


class AlreadyExistsError(FlaxError):
    """A file cannot be copied or renamed, because the destination already exists.

    Broken::

        import os, tempfile
        from toile import io

        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in "ab"]
            for path in paths:
                open(path, "w").close()
            io.copy(*paths)

    Repaired::

        import os, tempfile
        from toile import io

        with tempfile.TemporaryDirectory() as folder:
            paths = [os.path.join(folder, name) for name in "ab"]
            for path in paths:
                open(path, "w").close()
            io.copy(*paths, overwrite=True)
    """

    def __init__(self, path: Any) -> None:
        super().__init__(
            f'Trying overwrite an existing file: "{path}".',
            "pass overwrite=True, or choose another name",
        )


class CursorFindError(FlaxError):
    """`Cursor.find` found no object or more than one object.

    Broken::

        from toile.cursor import cursor

        params = {"a": {"kernel": 1}, "b": {"kernel": 2}}
        cursor(params).find(lambda path, value: "kernel" in path)

    Repaired::

        from toile.cursor import cursor

        params = {"a": {"kernel": 1}, "b": {"kernel": 2}}
        cursor(params).find(lambda path, value: path.startswith("b") and "kernel" in path)
    """

    def __init__(self, cursor: Any = None, cursor2: Any = None) -> None:
        if cursor is not None and cursor2 is not None:
            super().__init__(
                "More than one object found given the conditions of the cond_fn. The first two"
                f" objects found have the following paths: {cursor._path} and {cursor2._path} ",
                "make cond_fn narrower, or use find_all",
            )
        else:
            super().__init__(
                "No object found given the conditions of the cond_fn.",
                "cond_fn(path, value) gets paths such as 'params/Dense_0/kernel'; print them to"
                " see which there are",
            )


class TraverseTreeError(FlaxError):
    """A traversal needs either a condition or an update function, but received both or neither.

    Broken::

        from toile.cursor import _traverse_tree

        list(_traverse_tree((), {"a": 1}))

    Repaired::

        from toile.cursor import _traverse_tree

        list(_traverse_tree((), {"a": 1}, cond_fn=lambda path, value: path == "a"))
    """

    def __init__(self, update_fn: Any, cond_fn: Any) -> None:
        if update_fn is None and cond_fn is None:
            message = "Both update_fn and cond_fn are None. Exactly one of them must be None."
        else:
            message = (
                "Both update_fn and cond_fn are not None. Exactly one of them must be not None."
            )
        super().__init__(message, "pass update_fn to change values, cond_fn to find them")
