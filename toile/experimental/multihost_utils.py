"""What programs of several processes call; with one process everything is at hand already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from toile.engine.arrays import as_array
from toile.engine.trees import tree_map

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "live_devices",
    "process_allgather",
    "reached_preemption_sync_point",
    "sync_global_devices",
]


def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """The values of the source process, on all of them, as NumPy arrays."""
    return tree_map(np.asarray, in_tree)


def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """Every process's values along a new leading axis (or joined along the first, tiled)."""

    def one(x: Any) -> Any:
        value = np.asarray(x)
        return value if tiled and value.ndim else value[None]

    return tree_map(one, in_tree)


def sync_global_devices(name: str) -> None:
    """Wait for all processes to get here."""


def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Fail unless all processes have the same values; one process agrees with itself."""
    tree_map(np.asarray, in_tree)


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether the program is about to be stopped and should save its state."""
    return False


def host_local_array_to_global_array(local_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """Arrays of all processes from what each one has."""
    return tree_map(as_array, local_inputs)


def global_array_to_host_local_array(global_inputs: Any, global_mesh: Any, pspecs: Any) -> Any:
    """What this process has of arrays of all processes."""
    return tree_map(as_array, global_inputs)


@contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list[Any]]:
    """The devices of processes that are alive, for the duration of a block."""
    yield list(devices)
