"""Programs with several processes, which `mpirun` or `srun` starts and `initialize` connects.

After `initialize`, `devices` lists the devices of all processes, and `pmap` and
`training.replicated` run on all of them. In a program with a single process, `initialize` only
records that it was called. An uncaught error in one process ends all processes.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from toile.distributed import rendezvous
from toile.engine import devices
from toile.engine.platform_registry import registry
from toile.engine.source import here
from toile.parallel import processes

__all__ = ["initialize", "is_initialized", "shutdown"]


class _State:
    initialized = False
    meeting: rendezvous.Meeting | None = None
    hook: Any = None
    limit: float = 300


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 50,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Connect the processes that `mpirun` or `srun` has started.

    Afterward, `toile.devices()` lists the devices of all processes. A program with a single process
    may call this function too. The arguments are optional, because the launcher knows the processes
    and their addresses.

    Args:
        coordinator_address: not used.
        num_processes: number of processes; if it is given, it must agree with the launcher's
            number.
        process_id: index of this process; if it is given, it must agree with the launcher's index.
        local_device_ids: indices of the GPUs on this machine that this process uses. If None, the
            processes on a machine divide its GPUs among themselves.
        cluster_detection_method: not used.
        initialization_timeout: seconds to wait for all processes to connect. After this time, the
            job ends with an error that names the missing processes.
        heartbeat_timeout_seconds: seconds without a heartbeat after which a process is considered
            to have failed and the job ends.
        shutdown_timeout_seconds: seconds for which `shutdown` waits for all processes.
        coordinator_bind_address: not used.
        slice_index, partition_index: not used.

    Raises:
        RuntimeError: the function was called before, or an argument differs from the launcher's
            value.

    Differences:
        JAX connects processes through the address of a coordinator. In toile, a launcher must start
        the processes.
    """
    if _State.initialized:
        raise RuntimeError("distributed.initialize should only be called once." + here())
    launch = rendezvous.detect()
    _check(launch, num_processes, process_id)
    if launch is not None and launch.size > 1:
        ids = [local_device_ids] if isinstance(local_device_ids, int) else local_device_ids
        _join(launch, initialization_timeout, heartbeat_timeout_seconds, ids)
    _State.initialized, _State.limit = True, shutdown_timeout_seconds


def _check(launch: rendezvous.Launch | None, count: int | None, index: int | None) -> None:
    """Raise an error if the numbers differ from the launcher's."""
    size, rank = (1, 0) if launch is None else (launch.size, launch.rank)
    hint = (f"this is one process: start it with mpirun -n {count or 2}" if launch is None else
            f"{launch.launcher} started this process")
    if count not in (None, size):
        raise RuntimeError(
            f"distributed.initialize: needed num_processes={size}, got {count} ({hint}){here()}"
        )
    if index not in (None, rank):
        raise RuntimeError(
            f"distributed.initialize: needed process_id={rank}, got {index} ({hint}){here()}"
        )


def share(gpus: int, index: int, count: int, ids: Sequence[int] | None) -> list[int]:
    """The GPUs of process `index` of `count` on a machine: the requested GPUs, or an equal share.

    If there are more processes than GPUs, they share GPUs."""
    if ids is not None:
        wrong = [i for i in ids if not 0 <= i < gpus]
        if wrong:
            raise ValueError(
                f"distributed.initialize: needed local_device_ids of the {gpus} GPUs of this "
                f"machine, got {wrong}{here()}"
            )
        return list(ids)
    if gpus < count:
        return [index % gpus]
    each = gpus // count
    return list(range(index * each, (index + 1) * each))


def _own_devices(found: processes.Processes, ids: Sequence[int] | None) -> bytes:
    """The devices of this process: the number of CPU devices, and the GPUs by name."""
    names: list[str] = []
    for platform in registry.active:
        if platform.is_default and (count := platform.usable()):
            members = found.members
            local = [m.rank for m in members if m.host == members[found.rank].host]
            platform.use(share(count, local.index(found.rank), len(local), ids))
            names = [d.hardware for d in platform.devices()]
    return json.dumps([devices.cpu_count(), names]).encode()


def _number_devices(rank: int, texts: Sequence[bytes]) -> None:
    """Number the devices of all processes."""
    given = [json.loads(text) for text in texts]
    without = [r for r, (_, names) in enumerate(given) if not names]
    if without and len(without) < len(given):
        raise RuntimeError(
            "distributed.initialize: needed GPUs in all processes or in none, got none in ranks "
            f"{without} (TOILE_PLATFORM=cpu leaves them out everywhere){here()}"
        )
    devices.join(rank, [count for count, _ in given])
    if not without:
        registry.default().join(rank, [names for _, names in given])


def _join(
    launch: rendezvous.Launch, limit: float, heartbeat: float, ids: Sequence[int] | None
) -> None:
    meeting = rendezvous.Meeting(launch, limit)
    try:
        mpi = rendezvous.start_mpi(launch)
        found = processes.Processes(mpi, mpi.COMM_WORLD, heartbeat)
        given = found.all_gather(_own_devices(found, ids), "initialize")
    except BaseException:
        meeting.end(failed=True)
        meeting.tell("")
        raise
    own = found.members[found.rank].host
    local = [m for m in found.members if m.host == own]
    first = local[0].rank == found.rank
    meeting.tell("watch " + " ".join(f"{m.rank}:{m.pid}" for m in local) if first else "joined")
    found.on_failure = lambda: meeting.end(failed=True)
    _number_devices(found.rank, given)
    processes.slot.joined, _State.meeting = found, meeting
    _State.hook, sys.excepthook = sys.excepthook, _uncaught
    atexit.register(shutdown)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forget)


def _uncaught(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
    """Print an error as usual, then end all processes, because they would wait for this process."""
    _State.hook(kind, error, traceback)
    found = processes.slot.joined
    if found is None:
        return
    if issubclass(kind, processes.ProcessFailure):  # not a failure of this process
        found.fail(str(error).partition("\n  at ")[0], known=True)
    text = str(error).strip().partition("\n")[0][:200]
    found.fail(f"{found.members[found.rank]} failed with {kind.__name__}{': ' * bool(text)}{text}")


def _forget() -> None:
    """Forget the processes in a forked child, which is not one of these processes."""
    processes.slot.joined = None
    if _State.meeting is not None:
        _State.meeting.close_pipe()
    if sys.excepthook is _uncaught:
        sys.excepthook = _State.hook
    atexit.unregister(shutdown)


def is_initialized() -> bool:
    """Return whether `initialize` has been called.

    Returns:
        True after `initialize` and before `shutdown`.
    """
    return _State.initialized


def shutdown() -> None:
    """Wait until all processes have called this function, and then disconnect from them.

    This function is called automatically when Python exits.
    """
    found, processes.slot.joined = processes.slot.joined, None
    _State.initialized = False
    if found is None:
        return
    found.leave(_State.limit)
    if _State.meeting is not None:
        _State.meeting.end(failed=False)
        _State.meeting = None
    if sys.excepthook is _uncaught:
        sys.excepthook = _State.hook
    atexit.unregister(shutdown)
    devices.leave()
    for platform in registry.platforms():
        platform.leave()


def __getattr__(name: str) -> Any:
    if name == "global_state":
        raise AttributeError("distributed.global_state is JAX's own; use toile.process_index()")
    raise AttributeError(f"module 'toile.distributed' has no attribute {name!r}")
