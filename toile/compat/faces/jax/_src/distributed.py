"""`jax._src.distributed`: which process this is."""

from __future__ import annotations

from typing import Any

import toile

__all__ = ["State", "global_state"]


class State:
    """The numbers of this process and of all processes; there is no coordination service."""

    client: Any = None
    service: Any = None
    coordinator_address: str | None = None

    @property
    def process_id(self) -> int:
        """The number of this process."""
        return toile.process_index()

    @property
    def num_processes(self) -> int:
        """How many processes there are."""
        return toile.process_count()


global_state = State()
