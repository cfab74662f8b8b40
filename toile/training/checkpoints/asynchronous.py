"""Save checkpoints in a background thread while training continues.

If a save fails, the next call to the manager raises the error. If no call follows, the error is
printed when the manager is deleted or the program ends.
"""

from __future__ import annotations

import logging
import sys
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class AsyncManager:
    """A manager that saves checkpoints in a background thread while training continues.

    Pass the manager to `save_checkpoint(async_manager=...)`. If a save fails, the next call to the
    manager raises the error. If no call follows, the error is printed when the manager is deleted
    or the program ends. When used as a context manager, the manager waits for the last save at the
    end of the `with` block.

    Args:
        max_workers: number of threads; 1 is enough, since saves run one after another.

    >>> import tempfile
    >>> from toile.training import checkpoints
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with checkpoints.AsyncManager() as manager:
    ...         path = checkpoints.save_checkpoint(folder, [1.0], 3, async_manager=manager)
    ...     checkpoints.restore_checkpoint(folder, None)
    {'0': 1.0}
    """

    def __init__(self, max_workers: int = 1) -> None:
        self.executor = ThreadPoolExecutor(max_workers=max_workers)
        self.save_future: Future[Any] | None = None
        self._unseen: list[Future[Any]] = []
        weakref.finalize(self, _print_failures, self._unseen)

    def wait_previous_save(self) -> None:
        """Wait until the last save has finished, and raise the error if the save failed."""
        if self.save_future is not None and not self.save_future.done():
            logging.getLogger("toile").info("waiting for the previous save_checkpoint to finish")
        while self._unseen:
            future = self._unseen[0]
            future.exception()  # an interrupt while waiting leaves the future in the list
            self._unseen.pop(0)
            future.result()

    def save_async(self, task: Callable[[], Any]) -> None:
        """Run a task in the manager's background thread after the previous task has finished.

        Args:
            task: function without arguments.
        """
        self.wait_previous_save()
        self.save_future = self.executor.submit(task)
        self._unseen.append(self.save_future)

    def __enter__(self) -> AsyncManager:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.wait_previous_save()


def _print_failures(futures: list[Future[Any]]) -> None:
    for future in futures:
        future.add_done_callback(_print_failure)


def _print_failure(future: Future[Any]) -> None:
    if future.cancelled():
        print("toile: an asynchronous save was cancelled", file=sys.stderr)
    elif error := future.exception():
        print("toile: an asynchronous save failed, and no call waited for it:", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)
