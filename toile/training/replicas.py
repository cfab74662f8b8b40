"""Functions for training steps that `training.replicated` runs on several devices.

`average` averages a tree over the devices, and `fold` derives a different key for each device. In a
step that runs on one device, both return their argument unchanged, so the same step works for any
number of devices. `TrainState` uses both.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from toile import lax, random, tree
from toile import numpy as jnp
from toile.engine import dtypes
from toile.engine.annotations import PyTree
from toile.engine.devices import process_count
from toile.engine.keypaths import keystr
from toile.engine.sharded import Sharded, own_places
from toile.engine.source import here
from toile.engine.trace import Array
from toile.parallel.processes import joined
from toile.training.metrics import Collection, Metric

__all__ = ["average", "average_metrics", "check_replicas", "fold"]


class _Replicas(threading.local):
    """The mapped axis of the step that is being traced, and the weight of this device's part."""

    axis: Any = None
    weight: Any = None


_current = _Replicas()


@contextmanager
def over(axis: Any, weight: Any) -> Iterator[None]:
    """Set the mapped axis and the weight for a step that is traced in a `with` block."""
    before = _current.axis, _current.weight
    _current.axis, _current.weight = axis, weight
    try:
        yield
    finally:
        _current.axis, _current.weight = before


def average(values: PyTree) -> PyTree:
    """Average the floating-point arrays in a tree over the devices of a replicated step.

    Call this function in a step that `replicated` runs; elsewhere, and on one device, it returns
    its argument unchanged. `TrainState.apply_gradients` applies this function to the gradients.
    If the batch is padded, each device is weighted by its number of real examples.

    Args:
        values: tree of arrays.

    Returns:
        The tree with each floating-point array replaced by its mean over the devices.

    >>> from toile.training import average
    >>> average({"grad": jnp.float32(2)})  # outside a replicated step
    {'grad': Array(2., dtype=float32)}
    """
    if _current.axis is None:
        return values
    return _averaged(values, _is_float)


def _averaged(values: Any, chosen: Callable[[Any], bool]) -> Any:
    """The tree with the chosen leaves averaged over devices."""
    leaves, structure = tree.flatten(values)
    places = [i for i, x in enumerate(leaves) if chosen(x)]
    for i, mean in zip(places, _means([leaves[i] for i in places]), strict=True):
        leaves[i] = mean
    return tree.unflatten(structure, leaves)


def _means(leaves: list[Any]) -> list[Any]:
    """Means over devices, all in one collective operation."""
    axis, weight = _current.axis, _current.weight
    if weight is None:
        return lax.pmean(leaves, axis)
    scaled = [jnp.where(weight > 0, x * weight.astype(x.dtype), 0) for x in leaves]
    *sums, total = lax.psum([*scaled, weight], axis)
    return [s / total.astype(s.dtype) for s in sums]


def average_metrics(values: PyTree) -> PyTree:
    """Average metrics over the devices of a replicated step.

    `replicated` applies this function to the metrics that a step returns.

    Args:
        values: tree of numbers, metrics (`Metric`) and collections of metrics (`Collection`).
            Numbers are averaged; metrics are merged.

    Returns:
        A tree of the same structure.

    >>> from toile.training.replicas import average_metrics
    >>> average_metrics({"loss": 2.0})  # outside a replicated step
    {'loss': 2.0}
    """
    if _current.axis is None:
        return values
    leaves, structure = tree.flatten(values, is_leaf=_is_metric)
    plain = [i for i, x in enumerate(leaves) if not _is_metric(x)]
    numbers = [jnp.asarray(leaves[i]) for i in plain]
    numbers = [x if _is_float(x) else x.astype(jnp.float32) for x in numbers]
    for i, mean in zip(plain, _means(numbers), strict=True):
        leaves[i] = mean
    for i, x in enumerate(leaves):
        if _is_metric(x):
            leaves[i] = lax.all_gather(x, _current.axis).reduce()
    return tree.unflatten(structure, leaves)


def fold(key: PyTree) -> PyTree:
    """Derive a random key that is different on each device of a replicated step.

    Args:
        key: a key, or a tree of keys.

    Returns:
        The key with the device's index folded in; outside a replicated step, the key itself.

    >>> from toile.training.replicas import fold
    >>> bool((toile.random.key_data(fold(key(1))) == toile.random.key_data(key(1))).all())
    True
    """
    if _current.axis is None:
        return key
    index = lax.axis_index(_current.axis)
    return tree.map(lambda k: random.fold_in(k, index), key)


def changed(state: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """New values of a state's fields, averaged if they have changed."""
    if _current.axis is None:
        return fields
    kept = {id(x) for name in fields for x in tree.leaves(getattr(state, name, None))}
    return _averaged(fields, lambda x: id(x) not in kept and _is_float(x))


def _is_float(x: Any) -> bool:
    return isinstance(x, Array) and dtypes.is_inexact(x.dtype)


def _is_metric(x: Any) -> bool:
    return isinstance(x, (Metric, Collection))


def _differing_processes(values: Any) -> list[str]:
    """The arrays whose bits differ from the first process's; all processes call this."""
    if process_count() == 1:
        return []
    paths, sums = [], []
    for path, x in tree.flatten_with_path(values)[0]:
        if isinstance(x, Sharded) and not (x.is_fully_addressable or x.is_fully_replicated):
            continue  # each process has different parts of it
        paths.append(keystr(path))
        data = random.key_data(x) if dtypes.is_extended(getattr(x, "dtype", None)) else x
        sums.append(hashlib.blake2b(np.asarray(data).tobytes(), digest_size=8).digest())
    given = joined().all_gather(b"".join(sums), "check_replicas")
    return [
        f"{name} on process {rank}" for rank, other in enumerate(given)
        for i, name in enumerate(paths)
        if other[8 * i : 8 * i + 8] != given[0][8 * i : 8 * i + 8]
    ]


def check_replicas(values: PyTree) -> PyTree:
    """Check that every array is bit-for-bit identical on all devices.

    Args:
        values: tree of arrays, such as a state after a replicated step.

    Returns:
        `values`.

    Raises:
        ValueError: some arrays differ; the message lists their paths and devices.

    >>> from toile.training import check_replicas
    >>> check_replicas({"w": jnp.ones(3)})
    {'w': Array([1., 1., 1.], dtype=float32)}
    """
    wrong = []
    for path, x in tree.flatten_with_path(values)[0]:
        if not isinstance(x, Sharded):
            continue
        first: dict[Any, Any] = {}
        places = own_places(x.sharding, x.shape)
        for (device, index), part in zip(places.items(), x._parts, strict=True):
            key = tuple((i.start, i.stop) for i in index)
            same = first.setdefault(key, part)
            if same is not part and same.tobytes() != part.tobytes():
                wrong.append(f"{keystr(path)} on {device!r}")
    wrong += _differing_processes(values)
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ValueError(
            f"check_replicas: needed the same bits on all devices, got different ones in "
            f"{', '.join(wrong[:5])}{more} (average values that differ with "
            f"toile.training.average){here()}"
        )
    return values
