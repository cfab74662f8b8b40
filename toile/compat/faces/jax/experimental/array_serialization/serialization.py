"""`jax.experimental.array_serialization.serialization`: the interface of checkpoint managers."""

from __future__ import annotations

import abc
from typing import Any

__all__ = ["GlobalAsyncCheckpointManagerBase"]


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Saves arrays in the background; packages define what it does."""

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise the error of an earlier save, if there is one."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Wait until everything has been saved."""

    @abc.abstractmethod
    def serialize(self, arrays: Any, tensorstore_specs: Any, *, on_commit_callback: Any) -> None:
        """Save arrays."""

    @abc.abstractmethod
    def deserialize(
        self, shardings: Any, tensorstore_specs: Any, global_shapes: Any = None, dtypes: Any = None
    ) -> list[Any]:
        """Load arrays."""
