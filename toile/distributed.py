"""The processes of one program: so far there is one, which needs no coordination.

`initialize` for one process only remembers that it was called, so scripts written for many run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toile.engine.source import here

__all__ = ["initialize", "is_initialized", "shutdown"]


class _State:
    initialized = False


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: int | Sequence[int] | None = None,
    cluster_detection_method: str | None = None,
    initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100,
    shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None,
    slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:
    """Join the processes of a program; there may be one."""
    if _State.initialized:
        raise RuntimeError("distributed.initialize should only be called once." + here())
    if num_processes not in (None, 1):
        raise RuntimeError(
            f"distributed.initialize: needed num_processes=1, got {num_processes} (toile runs in "
            "one process)" + here()
        )
    if process_id not in (None, 0):
        raise RuntimeError(
            f"distributed.initialize: needed process_id=0, got {process_id} (toile runs in one "
            "process)" + here()
        )
    _State.initialized = True


def is_initialized() -> bool:
    """Whether `initialize` was called."""
    return _State.initialized


def shutdown() -> None:
    """Leave the processes of the program."""
    _State.initialized = False


def __getattr__(name: str) -> Any:
    if name == "global_state":
        raise AttributeError("distributed.global_state is JAX's own; use toile.process_index()")
    raise AttributeError(f"module 'toile.distributed' has no attribute {name!r}")
