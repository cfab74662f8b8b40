"""Displays in a notebook that are redrawn in place.

A notebook is any program that runs IPython with a kernel: Jupyter, JupyterLab, Colab, VS Code or
nbconvert. In other programs, this module is not used, and IPython is not imported.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from toile.engine.locks import loading

INTERVAL = 0.25  # minimum number of seconds between two drawings


def kernel_shell() -> Any:
    """Return the IPython shell if a notebook's kernel runs this code, else None."""
    module = sys.modules.get("IPython")  # if there is a kernel, it has imported IPython
    get = getattr(module, "get_ipython", None)
    shell = get() if get is not None else None
    return shell if getattr(shell, "kernel", None) is not None else None


class LiveDisplay:
    """One output of a notebook cell, which is redrawn at most once every `interval` seconds.

    If `refresh` is called before the interval has passed, a timer redraws the output later, at the
    latest at the end of the cell. A different cell, or the same cell if it runs again, gets a new
    output.

    Args:
        draw: a function without arguments that returns a dict from MIME types ("text/html",
            "text/plain") to texts.
        interval: minimum number of seconds between redraws.
        tick: number of seconds after which the output is redrawn even if `refresh` is not called.
            This continues until `close` is called. If `tick` is None, only `refresh` redraws the
            output.
    """

    def __init__(
        self, draw: Callable[[], Mapping[str, str]], interval: float = INTERVAL,
        tick: float | None = None,
    ):
        self._draw, self._interval, self._tick = draw, interval, tick
        self._lock = threading.RLock()  # drawings come from timers too
        self._handle: Any = None
        self._shell: Any = None
        self._cell: int | None = None
        self._timer: threading.Timer | None = None
        self._due = 0.0  # when the timer draws
        self._turn = 0  # number of the current timer; others were stopped
        self._next = 0.0
        self._late = False  # whether there is something newer to show

    def refresh(self) -> None:
        """Draw now, or as soon as the interval since the last drawing has passed."""
        with self._lock:
            self._late = True
            if self._is_new_cell():
                self._begin()
            wait = self._next - time.monotonic()
            if wait <= 0:
                self._update()
            elif self._timer is None or self._due > self._next:  # else: it is early enough
                self._stop_timer()
                self._later(wait)

    def close(self) -> None:
        """Draw for the last time if there is something new, and stop the timer."""
        self._tick = None
        self.flush()

    def flush(self) -> None:
        """Draw now if there is something new."""
        with self._lock:
            if self._late:
                self._update()
            self._stop_timer()

    def _is_new_cell(self) -> bool:
        return self._handle is None or self._shell.execution_count != self._cell

    def _begin(self) -> None:
        """Attach to the running cell, so that the next drawing creates a new output."""
        self._shell, self._handle = kernel_shell(), None
        self._cell, self._next = self._shell.execution_count, 0.0
        self._shell.events.register("post_run_cell", self._at_end)

    def _update(self) -> None:
        self._late = False
        shown = dict(self._draw())
        if self._handle is None:
            with loading:
                from IPython.display import DisplayHandle
            self._handle = DisplayHandle()
            self._handle.display(shown, raw=True)
        else:
            self._handle.update(shown, raw=True)
        self._next = time.monotonic() + self._interval
        self._stop_timer()
        if self._tick is not None:
            self._later(self._tick)

    def _later(self, seconds: float) -> None:
        # The context says which cell an output belongs to.
        run = functools.partial(contextvars.copy_context().run, self._on_time, self._turn)
        self._due = time.monotonic() + seconds
        self._timer = threading.Timer(seconds, run)
        self._timer.daemon = True
        self._timer.start()

    def _on_time(self, turn: int) -> None:
        with self._lock:
            if turn == self._turn:  # otherwise, the timer was stopped while it waited for the lock
                self._update()

    def _stop_timer(self) -> None:
        self._turn += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _at_end(self, result: Any = None) -> None:
        """Stop at the end of the cell, because later drawings would not be part of its output."""
        with self._lock:
            self._shell.events.unregister("post_run_cell", self._at_end)
            self.flush()
