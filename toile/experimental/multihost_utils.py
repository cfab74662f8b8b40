"""Functions that exchange values between the processes of a distributed program.

A tree must have the same structure in all processes, and its arrays must have the same shapes and
dtypes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from toile.engine.annotations import PyTree
from toile.engine.conversion import as_array
from toile.engine.devices import Device, process_count, process_index
from toile.engine.source import here
from toile.engine.trees import flatten, tree_map, unflatten
from toile.parallel.processes import joined

if TYPE_CHECKING:
    from toile.parallel.meshes import Mesh

__all__ = [
    "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
    "host_local_array_to_global_array", "live_devices", "process_allgather",
    "reached_preemption_sync_point", "sync_global_devices",
]


def broadcast_one_to_all(in_tree: PyTree, is_source: bool | None = None) -> PyTree:
    """Send the values of one process to all processes.

    Args:
        in_tree: tree of arrays and numbers; only the source process's values are used.
        is_source: whether this process is the source; if None, process 0 is the source.

    Returns:
        The source process's tree, with NumPy arrays as leaves.

    Raises:
        ValueError: the number of source processes is not 1, or shapes or dtypes differ between
            processes.

    >>> from toile.experimental.multihost_utils import broadcast_one_to_all
    >>> broadcast_one_to_all({"seed": 3})
    {'seed': array(3)}
    """
    leaves, tree = flatten(tree_map(np.asarray, in_tree))
    if process_count() == 1:
        return unflatten(tree, leaves)
    chosen = process_index() == 0 if is_source is None else bool(is_source)
    flags = joined().all_gather(b"1" if chosen else b"0", "broadcast_one_to_all")
    sources = [rank for rank, flag in enumerate(flags) if flag == b"1"]
    if len(sources) != 1:
        raise ValueError(
            f"broadcast_one_to_all: needed one process with is_source, got {sources}{here()}"
        )
    data = joined().broadcast(_packed(leaves), sources[0], "broadcast_one_to_all")
    return unflatten(tree, _unpacked(data, leaves, "broadcast_one_to_all", sources[0]))


def process_allgather(in_tree: PyTree, tiled: bool = False) -> PyTree:
    """Collect the values of all processes on every process.

    Args:
        in_tree: tree of arrays and numbers.
        tiled: whether arrays are concatenated along their first axis instead of being stacked along
            a new axis. Numbers are always stacked.

    Returns:
        A tree of NumPy arrays that contain the values in the order of the processes.

    Raises:
        ValueError: shapes or dtypes differ between processes.

    >>> from toile.experimental.multihost_utils import process_allgather
    >>> process_allgather({"loss": 3})
    {'loss': array([3])}
    """
    leaves, tree = flatten(tree_map(np.asarray, in_tree))
    if process_count() == 1:
        found = [leaves]
    else:
        data = joined().all_gather(_packed(leaves), "process_allgather")
        found = [_unpacked(d, leaves, "process_allgather", r) for r, d in enumerate(data)]

    def one(values: Sequence[Any]) -> Any:
        return np.concatenate(values) if tiled and values[0].ndim else np.stack(values)

    return unflatten(tree, [one(values) for values in zip(*found, strict=True)])


def sync_global_devices(name: str) -> None:
    """Wait until all processes have called this function.

    Args:
        name: name of this point in the program; all processes must pass the same name.

    Raises:
        AssertionError: the names differ.
    """
    if process_count() > 1:
        assert_equal(np.uint32(zlib.crc32(name.encode())), f"sync_global_devices name mismatch "
                                                           f"({name!r})")


def assert_equal(in_tree: PyTree, fail_message: str = "") -> None:
    """Raise an error in all processes unless all of them pass the same values.

    Args:
        in_tree: tree of arrays and numbers.
        fail_message: beginning of the error message.

    Raises:
        AssertionError: the values differ.
    """
    leaves, _ = flatten(tree_map(np.asarray, in_tree))
    if process_count() == 1:
        return
    given = joined().all_gather(_packed(leaves), fail_message or "assert_equal",
                                "assert_equal")
    other = [rank for rank, data in enumerate(given) if data != given[0]]
    if other:
        raise AssertionError(
            f"{fail_message or 'assert_equal'}: needed the same values in all processes, got "
            f"values on {other} that differ from those on process 0{here()}"
        )


def _packed(leaves: Sequence[Any]) -> bytes:
    """The arrays one after the other, each preceded by a line with its shape and dtype."""
    parts = [f"{x.shape}{x.dtype}".encode() + b"\n" + x.tobytes() for x in leaves]
    return b"".join(parts)


def _unpacked(data: bytes, leaves: Sequence[Any], what: str, rank: int) -> list[Any]:
    """The arrays packed by another process, which must have the types of `leaves`."""
    found, at = [], 0
    for x in leaves:
        line, wanted = data[at : data.index(b"\n", at)], f"{x.shape}{x.dtype}"
        if line.decode() != wanted:
            raise ValueError(
                f"{what}: needed the same shapes in all processes, got {wanted} on process "
                f"{process_index()} and {line.decode()} on process {rank}{here()}"
            )
        at += len(line) + 1
        found.append(np.frombuffer(data, x.dtype, x.size, at).reshape(x.shape).copy())
        at += x.nbytes
    return found


def reached_preemption_sync_point(step_id: int) -> bool:
    """Return whether the program is about to be stopped and should save its state.

    Args:
        step_id: number of the step; not used.

    Returns:
        Always False, because toile does not receive preemption notices.
    """
    return False


def _one_process(what: str) -> None:
    if process_count() > 1:
        raise NotImplementedError(
            f"{what}: needed one process, got {process_count()} (an array belongs to one process; "
            f"pmap and training.replicated take the part of each process){here()}"
        )


def host_local_array_to_global_array(
    local_inputs: PyTree, global_mesh: Mesh, pspecs: PyTree
) -> PyTree:
    """Create global arrays from the parts that the processes hold.

    This function works only if there is a single process, whose part is the whole array.

    Args:
        local_inputs: tree of arrays.
        global_mesh: mesh of all devices; not used.
        pspecs: partition specs of the arrays; not used.

    Returns:
        The tree, with toile arrays as leaves.

    Raises:
        NotImplementedError: there are several processes.
    """
    _one_process("host_local_array_to_global_array")
    return tree_map(as_array, local_inputs)


def global_array_to_host_local_array(
    global_inputs: PyTree, global_mesh: Mesh, pspecs: PyTree
) -> PyTree:
    """Return the parts of global arrays that belong to this process.

    This function works only if there is a single process, whose part is the whole array.

    Args:
        global_inputs: tree of arrays.
        global_mesh: mesh of all devices; not used.
        pspecs: partition specs of the arrays; not used.

    Returns:
        The tree, with toile arrays as leaves.

    Raises:
        NotImplementedError: there are several processes.
    """
    _one_process("global_array_to_host_local_array")
    return tree_map(as_array, global_inputs)


@contextmanager
def live_devices(devices: Sequence[Device]) -> Iterator[list[Device]]:
    """Return a context manager that provides the devices of the processes that are still running.

    In toile, an error in one process ends all processes, so all devices are always included.

    Args:
        devices: the devices to check.

    Yields:
        `devices`, as a list.
    """
    yield list(devices)
