"""Format speeds and times for progress bars."""

from __future__ import annotations

from toile.displays.nouns import plural


def rate(per_second: float | None, unit: str) -> str:
    """Format a speed in items per second, or in seconds per item if it is below 1 item per second.

    >>> rate(12.34, "step"), rate(3.0, "batch"), rate(250.0, "MB"), rate(0.5, "epoch")
    ('12.3 steps/s', '3.0 batches/s', '250.0 MB/s', '2.0 s/epoch')
    """
    if not per_second:
        return ""
    if per_second < 1:
        return f"{1 / per_second:.1f} s/{unit}"
    return f"{per_second:.1f} {plural(unit)}/s"


def clock(seconds: float | None) -> str:
    """Format a time as hours, minutes and seconds.

    >>> clock(3725.9), clock(None)
    ('1:02:05', '-:--:--')
    """
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
