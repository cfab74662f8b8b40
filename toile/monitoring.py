"""Reporting events, durations, time spans and scalars to listeners.

Listeners apply to the whole process and are called in the order in which they were registered.
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
    """Report an event to the event listeners.

    Args:
        event: name of the event, such as "/my_program/start".
        **kwargs: details, which are passed to the listeners as keyword arguments.

    >>> from toile import monitoring
    >>> monitoring.register_event_listener(print)
    >>> monitoring.record_event("/my_program/start")
    /my_program/start
    >>> monitoring.unregister_event_listener(print)
    """
    _events.send(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Report a duration to the duration listeners.

    Args:
        event: name of the event, such as "/my_program/start".
        duration: time in seconds.
        **kwargs: details, which are passed to the listeners as keyword arguments.
    """
    _durations.send(event, duration, **kwargs)


def record_event_time_span(
    event: str, start_time: float, end_time: float, **kwargs: str | int
) -> None:
    """Report the start and end of a time span to the time span listeners.

    Args:
        event: name of the event, such as "/my_program/start".
        start_time, end_time: times in seconds, such as results of `time.time()`.
        **kwargs: details, which are passed to the listeners as keyword arguments.
    """
    _spans.send(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float | int, **kwargs: str | int) -> None:
    """Report a number to the scalar listeners.

    Args:
        event: name of the event, such as "/my_program/start".
        value: the number.
        **kwargs: details, which are passed to the listeners as keyword arguments.
    """
    _scalars.send(event, value, **kwargs)


def register_event_listener(callback: Listener) -> None:
    """Call a function for every event that is recorded.

    Args:
        callback: function that is called as `callback(event, **kwargs)`.
    """
    _events.listeners.append(callback)


def register_event_duration_secs_listener(callback: Listener) -> None:
    """Call a function for every duration that is recorded.

    Args:
        callback: function that is called as `callback(event, duration, **kwargs)`.
    """
    _durations.listeners.append(callback)


def register_event_time_span_listener(callback: Listener) -> None:
    """Call a function for every time span that is recorded.

    Args:
        callback: function that is called as `callback(event, start_time, end_time, **kwargs)`.
    """
    _spans.listeners.append(callback)


def register_scalar_listener(callback: Listener) -> None:
    """Call a function for every scalar that is recorded.

    Args:
        callback: function that is called as `callback(event, value, **kwargs)`.
    """
    _scalars.listeners.append(callback)


def unregister_event_listener(callback: Listener) -> None:
    """Stop calling a function that `register_event_listener` has registered.

    Args:
        callback: the registered function.

    Raises:
        ValueError: `callback` is not registered.
    """
    _events.remove(callback)


def unregister_event_duration_listener(callback: Listener) -> None:
    """Stop calling a function that `register_event_duration_secs_listener` has registered.

    Args:
        callback: the registered function.

    Raises:
        ValueError: `callback` is not registered.
    """
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Listener) -> None:
    """Stop calling a function that `register_event_time_span_listener` has registered.

    Args:
        callback: the registered function.

    Raises:
        ValueError: `callback` is not registered.
    """
    _spans.remove(callback)


def unregister_scalar_listener(callback: Listener) -> None:
    """Stop calling a function that `register_scalar_listener` has registered.

    Args:
        callback: the registered function.

    Raises:
        ValueError: `callback` is not registered.
    """
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Remove all listeners of all kinds."""
    for channel in (_events, _durations, _spans, _scalars):
        channel.listeners.clear()


__all__ = [
    "clear_event_listeners", "record_event", "record_event_duration_secs", "record_event_time_span",
    "record_scalar", "register_event_duration_secs_listener", "register_event_listener",
    "register_event_time_span_listener", "register_scalar_listener",
    "unregister_event_duration_listener", "unregister_event_listener",
    "unregister_event_time_span_listener", "unregister_scalar_listener",
]
