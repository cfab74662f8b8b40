"""Events that programs record for listeners: counts, durations, time spans, scalars.

Listeners are process-wide and called in the order in which they were registered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toile.engine.source import here

Listener = Callable[..., None]


class _Channel:
    """The listeners of one kind of event."""

    def __init__(self, what: str):
        self.what = what
        self.listeners: list[Listener] = []

    def send(self, *event: Any, **metadata: Any) -> None:
        for listener in list(self.listeners):
            listener(*event, **metadata)

    def remove(self, callback: Listener) -> None:
        if callback not in self.listeners:
            raise ValueError(f"monitoring: needed a registered {self.what} listener, got "
                             f"{callback!r}{here()}")
        self.listeners.remove(callback)


_events, _durations = _Channel("event"), _Channel("duration")
_spans, _scalars = _Channel("time span"), _Channel("scalar")


def record_event(event: str, **kwargs: str | int) -> None:
    """Record that something happened."""
    _events.send(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Record how long something took."""
    _durations.send(event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Record when something began and ended."""
    _spans.send(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Record a number."""
    _scalars.send(event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Call `callback(event, **metadata)` for each event."""
    _events.listeners.append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call `callback(event, duration, **metadata)` for each duration."""
    _durations.listeners.append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call `callback(event, start, end, **metadata)` for each time span."""
    _spans.listeners.append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call `callback(event, value, **metadata)` for each scalar."""
    _scalars.listeners.append(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Stop calling an event listener."""
    _events.remove(callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Stop calling a duration listener."""
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Stop calling a time span listener."""
    _spans.remove(callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Stop calling a scalar listener."""
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Remove all listeners."""
    for channel in (_events, _durations, _spans, _scalars):
        channel.listeners.clear()


__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "record_event_time_span",
    "record_scalar", "register_event_duration_secs_listener", "register_event_listener",
    "register_event_time_span_listener", "register_scalar_listener",
    "unregister_event_duration_listener", "unregister_event_listener",
    "unregister_event_time_span_listener", "unregister_scalar_listener",
]
