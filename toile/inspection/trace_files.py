"""Profiles as Chrome traces, which ui.perfetto.dev and chrome://tracing display.

A trace has one call on several tracks: kernels one after the other, and the modules and passes that
they belong to. Times are whole nanoseconds, so that spans inside others never end after them.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from toile.inspection.kernels import Kernel
from toile.inspection.tables import counted

KERNELS, MODULES, PASSES = 1, 2, 3  # numbers of the tracks
TRACKS = {KERNELS: "kernels", MODULES: "modules", PASSES: "passes"}
SHOWN_LINES = 8  # lines of the user's code for one kernel


class Piece(NamedTuple):
    """A part of a kernel's time: the equations of one module and one pass."""

    start: float
    seconds: float
    path: tuple[str, ...]
    phase: str


def write_trace(file: Path, profile: Any) -> Path:
    """Write a profile to a file and return its path."""
    content = json.dumps({"displayTimeUnit": "ns", "traceEvents": list(events(profile))}).encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def events(profile: Any) -> Iterator[dict[str, Any]]:
    """The events of a trace: names of the tracks, then spans."""
    where = "cpu" if profile.device is None else str(profile.device)
    yield _named("process_name", 0, f"{profile.name} on {where}")
    for track, name in TRACKS.items():
        yield _named("thread_name", track, name)
        yield {**_named("thread_sort_index", track, ""), "args": {"sort_index": track}}
    yield span(profile.name, KERNELS, 0.0, profile.call, {
        "rounds": profile.rounds, "threads": profile.threads})
    yield span("(calling)", KERNELS, 0.0, profile.calling, {})
    pieces: list[Piece] = []
    at = profile.calling
    for k, seconds, inner in profile.times:
        yield from _kernel(k, at, seconds, inner)
        pieces += _pieces(k, at, seconds, inner)
        at += seconds
    yield from _modules(pieces)
    yield from _spans(pieces, PASSES, lambda p: p.phase)


def _named(what: str, track: int, name: str) -> dict[str, Any]:
    """An event that names a track, or the process."""
    return {"name": what, "ph": "M", "pid": os.getpid(), "tid": track, "ts": 0,
            "args": {"name": name}}


def span(name: str, track: int, start: float, seconds: float, details: dict[str, Any]
         ) -> dict[str, Any]:
    """One span of a track; times in seconds."""
    begin, end = round(start * 1e9), round((start + seconds) * 1e9)
    return {"name": name, "cat": TRACKS[track], "ph": "X", "pid": os.getpid(), "tid": track,
            "ts": begin / 1000, "dur": (end - begin) / 1000, "args": details}


# ---- kernels


def _kernel(k: Kernel, start: float, seconds: float, inner: Sequence[Any], turns: int = 1
            ) -> Iterator[dict[str, Any]]:
    trips = turns * (k.trips or 1)
    modules = [m for m in k.modules if m]
    name = f"[{k.number}] {k.kind}" + (f" {modules[0]}" if modules else "")
    yield span(name, KERNELS, start, seconds, {
        "operations": counted(k.operations), "modules": ", ".join(modules),
        "passes": ", ".join(dict.fromkeys(map(k.phase_of, k.equations))),
        "FLOPs": turns * k.flops, "bytes": turns * k.bytes, "lines": _lines(k),
        **({"iterations": trips} if trips > 1 else {}),
    })
    at = start + seconds - sum(s for _, s, _ in inner)
    for x, took, below in inner:
        yield from _kernel(x, at, took, below, trips)
        at += took


def _lines(k: Kernel) -> str:
    found = [f"{os.path.basename(file)}:{line}" for file, line in k.sources]
    more = [f"and {len(found) - SHOWN_LINES} more"] if len(found) > SHOWN_LINES else []
    return ", ".join(found[:SHOWN_LINES] + more)


def _pieces(k: Kernel, start: float, seconds: float, inner: Sequence[Any]) -> Iterator[Piece]:
    """The time of a kernel, divided among modules and passes."""
    own = seconds - sum(s for _, s, _ in inner)
    parts: dict[Any, float] = {}
    for e, share in k.shares():
        key = tuple(filter(None, k.path_of(e).split("/"))), k.phase_of(e)
        parts[key] = parts.get(key, 0.0) + own * share
    for (path, phase), took in parts.items():
        yield Piece(start, took, path, phase)
        start += took
    if not parts:
        start += own
    for x, took, below in inner:
        yield from _pieces(x, start, took, below)
        start += took


# ---- modules and passes


def _spans(pieces: Sequence[Piece], track: int, key: Callable[[Piece], Any]
           ) -> Iterator[dict[str, Any]]:
    """A span for each run of pieces with the same key; pieces without a key get no span."""
    i = 0
    while i < len(pieces):
        found, first = key(pieces[i]), i
        while i < len(pieces) and key(pieces[i]) == found:
            i += 1
        last = pieces[i - 1]
        if found:
            name = found[-1] if isinstance(found, tuple) else found
            details = {"path": "/".join(found)} if isinstance(found, tuple) else {}
            start = pieces[first].start
            yield span(name, track, start, last.start + last.seconds - start, details)


def _modules(pieces: Sequence[Piece]) -> Iterator[dict[str, Any]]:
    """A span for each run of a module; the spans of its submodules are inside it."""
    deepest = max((len(p.path) for p in pieces), default=0)
    for depth in range(1, deepest + 1):
        yield from _spans(pieces, MODULES, functools.partial(_module_at, depth))


def _module_at(depth: int, piece: Piece) -> tuple[str, ...]:
    """The path of the module at a depth; empty if the piece is in no module that deep."""
    return piece.path[:depth] if len(piece.path) >= depth else ()
