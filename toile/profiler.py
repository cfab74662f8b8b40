"""Recording profiles: annotated spans of a program, written as a Chrome trace.

Between `start_trace` and `stop_trace`, every annotation is recorded as a span with its thread,
start and duration. chrome://tracing and ui.perfetto.dev can display the resulting file. When no
profile is being recorded, annotations have almost no overhead.
"""

from __future__ import annotations

import functools
import gc
import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from toile.engine.arrays import ConcreteArray
from toile.engine.locks import shared_lock
from toile.engine.source import here

__all__ = [
    "ProfileOptions", "StepTraceAnnotation", "TraceAnnotation", "annotate_function",
    "device_memory_profile", "save_device_memory_profile", "start_server", "start_trace",
    "stop_server", "stop_trace", "trace",
]

P = ParamSpec("P")
R = TypeVar("R")


class ProfileOptions:
    """Options of JAX's profiler, which have no effect because toile records only annotations."""

    def __init__(self) -> None:
        self.python_tracer_level = 0
        self.host_tracer_level = 2
        self.device_tracer_level = 1
        self.advanced_configuration: dict[str, Any] = {}


class _Session:
    """A profile that is being recorded."""

    def __init__(self, folder: Path, perfetto: bool):
        self.folder, self.perfetto = folder, perfetto
        self.started = time.perf_counter_ns()
        self.events: list[dict[str, Any]] = []
        self.lock = shared_lock()

    def add(self, name: str, start: int, end: int, details: dict[str, Any]) -> None:
        event = {
            "name": name, "ph": "X", "pid": os.getpid(), "tid": threading.get_native_id(),
            "ts": (start - self.started) / 1000, "dur": (end - start) / 1000,
        }
        if details:
            event["args"] = {k: v if isinstance(v, (int, float, str)) else str(v)
                             for k, v in details.items()}
        with self.lock:
            self.events.append(event)

    def write(self) -> Path:
        stamp = time.strftime("%Y_%m_%d_%H_%M_%S")
        folder = self.folder / "plugins" / "profile" / stamp
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps({"displayTimeUnit": "ns", "traceEvents": self.events}).encode()
        file = folder / f"{socket.gethostname()}.trace.json.gz"
        file.write_bytes(gzip.compress(content))
        if self.perfetto:
            (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(content))
        return file


class _State:
    session: _Session | None = None
    lock = shared_lock()


def start_trace(
    log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False, profiler_options: ProfileOptions | None = None,
) -> None:
    """Start recording a profile, which `stop_trace` writes to a file.

    The profile contains the spans of `TraceAnnotation`, `StepTraceAnnotation` and
    `annotate_function`. It is a Chrome trace, which https://ui.perfetto.dev and chrome://tracing
    can display.

    Args:
        log_dir: folder for the profile. Files are written to its subfolder `plugins/profile/TIME`,
            in which TensorBoard looks for them.
        create_perfetto_link: whether to write `perfetto_trace.json.gz` as well; no link is printed.
        create_perfetto_trace: whether to write `perfetto_trace.json.gz` as well.
        profiler_options: not used.

    Raises:
        RuntimeError: a profile is already being recorded.
    """
    with _State.lock:
        if _State.session is not None:
            raise RuntimeError("Profile has already been started. Only one profile may be run at a "
                               "time." + here())
        perfetto = create_perfetto_trace or create_perfetto_link
        _State.session = _Session(Path(log_dir), perfetto)


def stop_trace() -> None:
    """Stop recording the profile that `start_trace` started, and write it to a file.

    Raises:
        RuntimeError: no profile is being recorded.
    """
    with _State.lock:
        session, _State.session = _State.session, None
    if session is None:
        raise RuntimeError("No profile started" + here())
    session.write()


@contextmanager
def trace(
    log_dir: os.PathLike[str] | str, create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False, profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """Record a profile of a `with` block by calling `start_trace` and `stop_trace`.

    Args:
        log_dir: folder for the profile. Files are written to its subfolder `plugins/profile/TIME`,
            in which TensorBoard looks for them.
        create_perfetto_link: whether to write `perfetto_trace.json.gz` as well; no link is printed.
        create_perfetto_trace: whether to write `perfetto_trace.json.gz` as well.
        profiler_options: not used.

    Yields:
        None.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with toile.profiler.trace(folder):
    ...         with toile.profiler.TraceAnnotation("first step"):
    ...             x = jnp.ones(3) + 1
    ...     len(list(pathlib.Path(folder).rglob("*.trace.json.gz")))
    1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()


class TraceAnnotation:
    """A context manager that makes a block appear as a span in profiles.

    The annotation has no effect unless a profile is being recorded.

    Args:
        name: name of the span.
        **kwargs: details to show for the span.
    """

    def __init__(self, name: str, **kwargs: object):
        self.name, self.details = name, kwargs
        self._started = 0

    def __enter__(self) -> TraceAnnotation:
        self._started = time.perf_counter_ns()
        return self

    def __exit__(self, *_: Any) -> None:
        session = _State.session
        if session is not None and self._started >= session.started:
            session.add(self.name, self._started, time.perf_counter_ns(), self.details)

    def set_metadata(self, **kwargs: Any) -> None:
        """Add details to the span.

        Args:
            **kwargs: names and values of the details.
        """
        self.details.update(kwargs)

    @staticmethod
    def is_enabled() -> bool:
        """Return whether a profile is being recorded."""
        return _State.session is not None


class StepTraceAnnotation(TraceAnnotation):
    """A context manager that makes a block appear as one training step in profiles.

    Args:
        name: name of the span, such as "train".
        **kwargs: details to show for the span, such as `step_num`, the number of the step.
    """

    def __init__(self, name: str, **kwargs: Any):
        super().__init__(name, _r=1, **kwargs)


def annotate_function(
    func: Callable[P, R], name: str | None = None, **decorator_kwargs: object
) -> Callable[P, R]:
    """Decorate a function so that each call to it appears as a span in profiles.

    Args:
        func: function to decorate.
        name: name of the spans; None for the name of the function.
        **decorator_kwargs: details to show for each span.

    Returns:
        A function with the same arguments and results.
    """
    called: Any = getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))
    label: str = name or called

    @functools.wraps(func)
    def annotated(*args: P.args, **kwargs: P.kwargs) -> R:
        with TraceAnnotation(label, **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


def device_memory_profile(backend: str | None = None) -> bytes:
    """List all arrays that are in memory, grouped by dtype and shape.

    Args:
        backend: not used.

    Returns:
        A JSON object, encoded as bytes, with the entries `total_bytes` and `arrays`. `arrays` lists
        the `dtype`, `shape`, `count` and `bytes` of each group of arrays, starting with the largest
        group.

    Differences:
        JAX returns a profile in the format of `pprof`, not JSON.
    """
    found: dict[tuple[Any, ...], list[int]] = {}
    for o in gc.get_objects():
        # not isinstance: other packages' objects may warn when asked for their __class__
        if issubclass(type(o), ConcreteArray) and not o.is_deleted():
            entry = found.setdefault((str(o.dtype), o.shape), [0, 0])
            entry[0] += 1
            entry[1] += o.nbytes
    rows = [{"dtype": d, "shape": list(s), "count": n, "bytes": b}
            for (d, s), (n, b) in sorted(found.items(), key=lambda item: -item[1][1])]
    total = sum(r["bytes"] for r in rows)
    return json.dumps({"total_bytes": total, "arrays": rows}).encode()


def save_device_memory_profile(
    filename: os.PathLike[str] | str, backend: str | None = None
) -> None:
    """Write the result of `device_memory_profile` to a file.

    Args:
        filename: path of the file.
        backend: not used.
    """
    Path(filename).write_bytes(device_memory_profile(backend))


def start_server(port: int, requires_backend: bool = True) -> None:
    """Raise NotImplementedError, because toile has no profiler server.

    Use `toile.profiler.trace` instead.

    Args:
        port: port on which JAX's server listens; not used.
        requires_backend: whether JAX's server needs a device; not used.
    """
    raise NotImplementedError(
        "profiler.start_server: needed a file, got a port (use toile.profiler.trace(log_dir))"
        + here()
    )


def stop_server() -> None:
    """Raise ValueError, because toile has no profiler server to stop."""
    raise ValueError("No active profiler server." + here())
