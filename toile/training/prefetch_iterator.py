"""An iterator that loads items ahead in a background thread."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["PrefetchIterator"]

_ITEM, _ERROR, _END = range(3)


class PrefetchIterator:
    """Loads items from an iterator in a background thread before they are needed; deprecated.

    `toile.training.loader.Loader` loads ahead without a PrefetchIterator. If the iterator raises an
    error while an item is loaded ahead, the error is raised again when that item is requested.

    Args:
        data_iter: the iterator.
        buffer_size: maximum number of items to load ahead; at least 1.

    >>> import warnings
    >>> from toile.training.prefetch_iterator import PrefetchIterator
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", DeprecationWarning)
    ...     items = PrefetchIterator(iter([1, 2, 3]), buffer_size=2)
    >>> list(items)
    [1, 2, 3]
    """

    def __init__(self, data_iter: Iterator[Any], buffer_size: int = 1):
        warnings.warn(
            "PrefetchIterator is deprecated: toile.training.loader.Loader(prefetch=...) loads "
            "ahead, and toile.jax_utils.prefetch_to_device moves batches to devices",
            DeprecationWarning,
            stacklevel=2,
        )
        self.buffer_size = buffer_size
        self._queue: queue.Queue = queue.Queue(max(buffer_size, 1))
        self._closed = threading.Event()
        self._last: tuple[int, Any] | None = None
        args = (iter(data_iter), self._queue, self._closed)
        threading.Thread(target=_work_ahead, args=args, daemon=True).start()

    def __iter__(self) -> PrefetchIterator:
        return self

    def __next__(self) -> Any:
        while self._last is None:
            try:
                kind, value = self._queue.get(timeout=None if not self._closed.is_set() else 0)
            except queue.Empty:
                kind, value = _END, None
            if kind == _ITEM:
                return value
            self._last = (kind, value)
        if self._last[0] == _ERROR:
            raise self._last[1]
        raise StopIteration

    def close(self) -> None:
        """Stop loading ahead; items that are already loaded are still returned."""
        self._closed.set()
        try:
            self._queue.put_nowait((_END, None))  # wakes a consumer that waits
        except queue.Full:
            pass


def _work_ahead(items: Iterator[Any], out: queue.Queue, closed: threading.Event) -> None:
    """Fill the queue, without a reference that would keep the `PrefetchIterator` alive."""

    def put(entry: tuple[int, Any]) -> bool:
        while not closed.is_set():
            try:
                out.put(entry, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    try:
        for item in items:
            if not put((_ITEM, item)):
                return
    except Exception as error:  # raised in the consumer, whatever it is
        put((_ERROR, error))
        return
    put((_END, None))
