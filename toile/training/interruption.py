"""Stop a loop after its current step: `with StopRequests() as stop: … if stop: break`.

If a step is interrupted, the parameters and the position in the data may be one step apart; a loop
that stops between steps saves a consistent state. SIGTERM, which clusters send before they reclaim
a machine, is treated like Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["StopRequests"]


class StopRequests:
    """Lets a loop finish its step when the process is asked to stop.

    In the `with` block, Ctrl-C (SIGINT) and SIGTERM do not interrupt the loop. Instead, the object
    becomes truthy. A second Ctrl-C interrupts the loop immediately. Outside the main thread, where
    Python delivers no signals, the object has no effect.

    >>> import signal
    >>> from toile.training.interruption import StopRequests
    >>> with StopRequests() as stop:
    ...     for step in range(100):
    ...         if step == 3:
    ...             signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
    ...         if stop:
    ...             break
    >>> step
    3
    """

    def __init__(self) -> None:
        self._requested = False
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self._requested

    def __enter__(self) -> StopRequests:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._restore()

    def _request(self, number: int, frame: Any) -> None:
        self._requested = True
        self._restore()

    def _restore(self) -> None:
        while self._before:
            number, handler = self._before.popitem()
            signal.signal(number, handler)
