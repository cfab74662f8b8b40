"""Batches of examples: shuffled, loaded ahead in threads, split among processes, and resumable.

The order of the examples in an epoch depends only on the key and the epoch number. A loader's
position consists of two numbers, and a loader restored from these numbers yields exactly the
batches that remained. Batch `b` of an epoch contains the same examples, no matter how many
processes share the batch.
"""

from __future__ import annotations

import collections
import concurrent.futures
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self, SupportsInt

import numpy as np

from toile import random, tree
from toile.api.devices import process_count as default_process_count
from toile.api.devices import process_index as default_process_index
from toile.engine.annotations import Array, PyTree
from toile.engine.source import here
from toile.engine.tracebacks import expect_error
from toile.tree_util import tree_leaves_with_path

__all__ = ["ArraySource", "Loader", "as_source"]

_POLICIES = ("drop", "keep", "pad")


class Loader:
    """Iterates over a data set in batches; it can shuffle, load ahead in threads and be resumed.

    A `for` loop runs over one epoch. The order of the examples in an epoch depends only on the key
    and the epoch number, so a loader restored to a saved position continues with exactly the
    batches that remained.

    Args:
        source: tree of arrays whose first axes have equal lengths, such as a dict of NumPy arrays;
            or a source of examples with `__len__` and `__getitem__`, such as a source that a
            function in `toile.training.datasets` returns.
        batch_size: number of examples in one process's batch.
        key: random key for shuffling every epoch differently; if None, the order of the source is
            kept.
        last: how to treat a last batch that is not full: `"drop"` leaves it out, `"keep"` keeps the
            shorter batch, and `"pad"` pads it with zeros. With `"pad"`, a mask that is True for
            real examples is added to every batch: as the entry `mask` of a dict, or as the last
            entry of a tuple. Any other batch becomes a pair (batch, mask).
        transform: a function `f(batch)` that returns the batch to use; if None, batches are not
            transformed.
        augment: a function `f(batch, rng)` that returns a changed batch; it is called before
            `transform`. `rng` is a NumPy random generator that depends only on the key, the epoch
            and the batch number. If `augment` is None, batches are not augmented.
        prefetch: number of batches to load ahead; if 0, no batches are loaded ahead.
        threads: number of threads that load batches; if 0, the calling thread loads them.
        process_index: index of this process among the processes that share the data; if None,
            `toile.process_index()` is used.
        process_count: number of processes that share the data, each of which receives different
            examples; if None, `toile.process_count()` is used.

    Raises:
        ValueError: there are too few examples for a batch, or the arrays differ in length.

    >>> import numpy as np
    >>> from toile.training.loader import Loader
    >>> data = {"x": np.arange(10)}
    >>> loader = Loader(data, 4, key=key(0))
    >>> [batch["x"].tolist() for batch in loader]
    [[0, 8, 2, 4], [1, 7, 9, 5]]
    >>> first = next(iter(loader))  # the first batch of epoch 1
    >>> other = Loader(data, 4, key=key(0))
    >>> other.load_state_dict(loader.state_dict())
    >>> len(list(other)), other.epoch
    (1, 2)
    """

    def __init__(
        self, source: PyTree, batch_size: int, *, key: Array | None = None, last: str = "drop",
        transform: Callable[[Any], Any] | None = None,
        augment: Callable[[Any, np.random.Generator], Any] | None = None,
        prefetch: int = 2, threads: int = 1,
        process_index: int | None = None, process_count: int | None = None,
    ):
        if last not in _POLICIES:
            raise ValueError(f"Loader: needed last in {_POLICIES}, got {last!r}{here()}")
        if batch_size < 1:
            raise ValueError(f"Loader: needed batch_size >= 1, got {batch_size}{here()}")
        self._source = as_source(source)
        self.batch_size, self.last = int(batch_size), last
        self._key = None if key is None else random.clone(key)
        self._transform, self._augment = transform, augment
        self._prefetch, self._threads = prefetch, threads
        self.process_index = default_process_index() if process_index is None else process_index
        self.process_count = default_process_count() if process_count is None else process_count
        if not 0 <= self.process_index < self.process_count:
            raise ValueError(
                f"Loader: needed 0 <= process_index < {self.process_count}, got "
                f"{self.process_index}{here()}"
            )
        if last == "keep" and self.process_count > 1:
            raise ValueError(
                "Loader: needed last='drop' or 'pad' with several processes, got 'keep' (every "
                f"process must see equally many batches of equal size){here()}"
            )
        self._size = len(self._source)
        self._epoch = self._batch = 0
        if len(self) == 0:
            raise ValueError(
                f"Loader: needed at least {batch_size * self.process_count} examples for a batch, "
                f"got {self._size} (last='pad' or 'keep' takes fewer){here()}"
            )

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        whole = self.batch_size * self.process_count
        return self._size // whole if self.last == "drop" else -(-self._size // whole)

    @property
    def examples(self) -> int:
        """The number of examples in the source."""
        return self._size

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._epoch

    @property
    def batch(self) -> int:
        """The number of the next batch in its epoch; `len(loader)` after the last batch."""
        return self._batch

    @property
    def step(self) -> int:
        """The number of batches before the next batch, counted over all epochs."""
        return self._epoch * len(self) + self._batch

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the remaining batches of the current epoch."""
        epoch = self._epoch
        for number, batch in self._ahead(epoch, self._batch):
            self._epoch, self._batch = epoch, number + 1
            yield batch
        self._epoch, self._batch = epoch + 1, 0

    def forever(self) -> Iterator[Any]:
        """Iterate over batches forever, epoch after epoch."""
        while True:
            yield from self

    def state_dict(self) -> dict[str, int]:
        """Return the current position, to be saved in a checkpoint.

        Batches that have been loaded ahead but not yet returned are not counted.

        Returns:
            A dict of ints: `epoch` and `batch`, and numbers that identify the data and the options.
        """
        return {"epoch": self._epoch, "batch": self._batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, SupportsInt]) -> None:
        """Move to a saved position.

        Args:
            state: result of `state_dict`.

        Raises:
            ValueError: `state` is from a loader with different data or options.
        """
        mine = self._identity()
        other = {name: int(state[name]) for name in mine}
        wrong = [f"{n}={other[n]} (this loader has {mine[n]})" for n in mine if mine[n] != other[n]]
        if wrong:
            raise ValueError(
                "Loader.load_state_dict: needed the position of a loader with the same data and "
                f"options, got {', '.join(wrong)}{here()}"
            )
        self.seek(int(state["epoch"]), int(state["batch"]))

    def seek(self, epoch: int, batch: int = 0) -> None:
        """Move to a given batch of a given epoch.

        Args:
            epoch: epoch number, counted from 0.
            batch: batch number, counted from 0.
        """
        if epoch < 0 or not 0 <= batch <= len(self):
            raise ValueError(
                f"Loader.seek: needed epoch >= 0 and a batch of 0 to {len(self)}, got epoch "
                f"{epoch}, batch {batch}{here()}"
            )
        self._epoch, self._batch = epoch, batch

    def _identity(self) -> dict[str, int]:
        """The settings that determine the order of batches, as numbers."""
        bits = [] if self._key is None else _words(self._key)
        mixed = 0
        for word in bits:
            mixed = (mixed * 1000003 ^ word) & 0x7FFFFFFF
        return {
            "examples": self._size,
            "global_batch_size": self.batch_size * self.process_count,
            "last": _POLICIES.index(self.last),
            "shuffle": mixed + 1 if bits else 0,
        }

    def _ahead(self, epoch: int, start: int) -> Iterator[tuple[int, Any]]:
        """Numbered batches of an epoch, created ahead in threads; order and errors are kept."""
        order = self._order(epoch)
        numbers = iter(range(start, len(self)))
        if not self._prefetch or not self._threads:
            for number in numbers:
                yield number, self._make(order, epoch, number)
            return
        pool = concurrent.futures.ThreadPoolExecutor(self._threads, "toile-loader")
        waiting: collections.deque[Any] = collections.deque()

        def submit() -> None:
            number = next(numbers, None)
            if number is not None:
                made = pool.submit(self._make, order, epoch, number)
                waiting.append((number, made))

        try:
            for _ in range(self._prefetch):
                submit()
            while waiting:
                number, made = waiting.popleft()
                try:
                    batch = made.result()
                except Exception:
                    expect_error()
                    raise
                submit()
                yield number, batch
        finally:  # also when the loop is left early
            pool.shutdown(wait=False, cancel_futures=True)

    def _order(self, epoch: int) -> np.ndarray | None:
        """The indices of the examples in an epoch; None for the order of the source."""
        if self._key is None:
            return None
        return np.asarray(random.permutation(random.fold_in(self._key, epoch), self._size))

    def _make(self, order: np.ndarray | None, epoch: int, number: int) -> Any:
        """One batch."""
        begin = (number * self.process_count + self.process_index) * self.batch_size
        end = min(begin + self.batch_size, self._size)
        chosen = np.arange(begin, end) if order is None else order[begin:end]
        batch = self._examples(chosen)
        if self.last == "pad":
            batch = _padded(batch, len(chosen), self.batch_size)
        if self._augment is not None:
            seed = [epoch, number, self.process_index]
            seed += [] if self._key is None else _words(self._key)
            batch = self._augment(batch, np.random.default_rng(seed))
        return batch if self._transform is None else self._transform(batch)

    def _examples(self, indices: np.ndarray) -> Any:
        """The examples of a batch, stacked; for no indices, arrays whose first axis is empty."""
        if isinstance(self._source, ArraySource):
            return self._source.take(indices)
        wanted = indices.tolist() or [0]
        many = getattr(self._source, "__getitems__", None)
        items = many(wanted) if many is not None else [self._source[i] for i in wanted]
        stacked = tree.map(lambda *xs: np.stack([np.asarray(x) for x in xs]), *items)
        return stacked if len(indices) else tree.map(lambda x: x[:0], stacked)


class ArraySource:
    """A source of examples that are the rows of a tree of arrays.

    The arrays may be memory-mapped files, whose rows are read only when a batch needs them.

    Args:
        arrays: tree of arrays whose first axes have equal lengths.

    >>> source = ArraySource({"x": np.arange(5) ** 2})
    >>> len(source), int(source[2]["x"]), source.take(np.array([4, 0]))["x"].tolist()
    (5, 4, [16, 0])
    >>> source.subset(np.array([1, 3])).take(np.array([1]))["x"].tolist()
    [9]
    """

    def __init__(self, arrays: Any):
        sizes = {
            "".join(map(str, path)) or "the array": np.shape(leaf)
            for path, leaf in tree_leaves_with_path(arrays)
        }
        if not sizes or len({shape[:1] for shape in sizes.values()}) != 1 or () in sizes.values():
            found = ", ".join(f"{path}: {shape}" for path, shape in sizes.items())
            raise ValueError(
                "Loader: needed arrays with the same length of the first axis, or a source with "
                f"__len__ and __getitem__, got {found or 'no arrays'}{here()}"
            )
        self._arrays = tree.map(np.asarray, arrays)
        self._length = next(iter(sizes.values()))[0]
        self._rows: np.ndarray | None = None

    def __len__(self) -> int:
        return self._length if self._rows is None else len(self._rows)

    def __getitem__(self, index: int) -> Any:
        if not -len(self) <= index < len(self):
            raise IndexError(f"needed an index below {len(self)}, got {index}")
        return tree.map(lambda x: x[0], self.take(np.array([index])))

    def take(self, indices: np.ndarray) -> Any:
        """Return a copy of the rows at the given indices."""
        rows = indices if self._rows is None else self._rows[indices]
        return tree.map(lambda x: np.asarray(x[rows]), self._arrays)

    def subset(self, rows: np.ndarray) -> Self:
        """Return a source that contains some of the rows; nothing is read or copied."""
        chosen = copy.copy(self)
        chosen._rows = rows if self._rows is None else self._rows[rows]
        return chosen


def as_source(source: PyTree) -> Any:
    """Convert data that a Loader accepts to a source of examples.

    Args:
        source: tree of arrays whose first axes have equal lengths, or a source of examples.

    Returns:
        An `ArraySource` for a tree of arrays; a source of examples is returned unchanged.

    >>> len(as_source({"x": np.zeros((3, 2))}))
    3
    """
    return source if _is_random_access(source) else ArraySource(source)


def _is_random_access(source: Any) -> bool:
    """Whether a source consists of examples rather than being a tree of arrays."""
    if isinstance(source, (dict, list, tuple)) or hasattr(source, "__array__"):
        return False
    is_leaf = tree.structure(source) == tree.structure(0)  # a registered container is a tree
    return is_leaf and hasattr(source, "__len__") and hasattr(source, "__getitem__")


def _words(key: Any) -> list[int]:
    """The bits of a key."""
    bits = random.key_data(key) if hasattr(key, "dtype") else key
    return [int(word) for word in np.asarray(bits).reshape(-1)]


def _padded(batch: Any, real: int, size: int) -> Any:
    """The batch padded with zeros, and a mask of the real examples."""

    def fill(x: np.ndarray) -> np.ndarray:
        if len(x) == size:
            return x
        return np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), x.dtype)])

    full, mask = tree.map(fill, batch), np.arange(size) < real
    if isinstance(full, dict):
        if "mask" in full:
            raise ValueError(
                f"Loader: needed a batch without an entry 'mask' to pad it, got one{here()}"
            )
        return {**full, "mask": mask}
    return (*full, mask) if type(full) is tuple else (full, mask)
