"""The runs of a sweep, each in its own process.

The process is spawned, not forked. It writes its output to `log.txt` in its folder and sends one
message, which contains its metrics or its error as JSON. A process that ends without a message has
failed. The process has its own session, so that Ctrl-C reaches only the sweep. The process ends
when the sweep ends.
"""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from toile.engine.source import here
from toile.training import curves

__all__ = ["Run", "check_function"]

GRACE = 10.0  # seconds that a run has to save and end when it is asked to


def check_function(train: Callable[..., Any]) -> str:
    """Return the name of a function, or raise an error if another process cannot import it."""
    module, name = getattr(train, "__module__", None), getattr(train, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not train or not callable(train):
        raise ValueError(
            "sweep.run: needed a function that another process can import, defined at the top of a "
            f"module, got {name or train!r} of {module}{here()}"
        )
    return f"{module}:{name}"


class Run:
    """A run in its own process.

    Args:
        train: the function to call with the configuration and the folder.
        config: the configuration.
        folder: the folder to write to.
        environment: environment variables to set in addition to those of this process.
    """

    def __init__(
        self, train: Callable[..., Any], config: Any, folder: Path, environment: Mapping[str, str]
    ):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=_child, args=(theirs, train, config, str(folder)), name=folder.name
        )
        with _changed_environment(environment):
            self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    def result(self) -> tuple[dict[str, float], str]:
        """The metrics and the error, one of which is empty; call it when the pipe has data."""
        try:
            message = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            message = None
        self.process.join(GRACE)
        if message is None:
            message = {"error": _ending(self.process.exitcode)}
        self.stop()
        metrics = {name: float(value) for name, value in message.get("metrics", {}).items()}
        return metrics, message.get("error", "")

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process, so that a loop with StopRequests saves and ends."""
        if self.process.is_alive():
            self.process.terminate()

    def stop(self) -> None:
        """End the process; kill it if it does not end in time."""
        self.ask_to_stop()
        self.process.join(GRACE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = str(-code)
        return f"the process was ended by signal {name} (out of memory?)"
    return f"the process ended with exit code {code} and without a result"


@contextlib.contextmanager
def _changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a process that is started in the block."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# ---- in the process of the run


def _child(pipe: Connection, train: Callable[..., Any], config: Any, folder: str) -> None:
    """Call the function, and send its result or error."""
    if hasattr(os, "setsid"):
        os.setsid()
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder) / "log.txt", "a", encoding="utf-8", buffering=1) as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            message: dict[str, Any]
            try:
                message = {"metrics": _metrics(train(config, folder), Path(folder))}
            except BaseException as error:
                traceback.print_exc()
                lines = str(error).strip().splitlines() or [""]
                message = {"error": f"{type(error).__name__}: {lines[0]}"}
    pipe.send_bytes(json.dumps(message).encode())


def _end_with_parent(pipe: Connection) -> None:
    """End this process when the other end of the pipe is closed, because the sweep was killed."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)


def _metrics(result: Any, folder: Path) -> dict[str, float | str]:
    """The last values of metrics.jsonl, and the numbers that the function returned."""
    found: dict[str, Any] = {}
    if (folder / "metrics.jsonl").is_file():
        for _, entry in curves.entries(folder / "metrics.jsonl"):
            found |= {n: v for n, v in entry.items() if n not in ("step", "time", "hparams")}
    if isinstance(result, Mapping):
        found |= result
    numbers: dict[str, float | str] = {}
    for name, value in found.items():
        array = np.asarray(value)
        if array.size == 1 and (array.dtype.kind in "biuf" or value in ("nan", "inf", "-inf")):
            number = float(array.reshape(()).item())
            numbers[str(name)] = number if math.isfinite(number) else str(number)
    return numbers
