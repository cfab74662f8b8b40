"""Errors for allocations that do not fit into the machine's memory.

They name the array that was needed, what made it, how much memory there is, and the line of the
user's program. This module may import engine.avals and engine.source.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from toile.engine.source import here

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(count: float) -> str:
    """A number of bytes with the unit that fits, such as 1.5 GiB."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} {_UNITS[-1]}"


def _meminfo() -> dict[str, int]:
    """Linux's table of memory in bytes; elsewhere only the total, or nothing."""
    try:
        with open("/proc/meminfo") as file:
            rows = [line.split() for line in file]
        return {row[0].rstrip(":"): 1024 * int(row[1]) for row in rows if len(row) > 1}
    except (OSError, ValueError):
        pass
    try:
        return {"MemTotal": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    except (AttributeError, OSError, ValueError):
        return {}


def capacity() -> int | None:
    """The bytes of memory and swap space of this machine; None if they are unknown."""
    found = _meminfo()
    return found["MemTotal"] + found.get("SwapTotal", 0) if "MemTotal" in found else None


def memory_error(what: str, avals: Sequence[Any], place: str = "") -> MemoryError:
    """The error for arrays that do not fit into memory; `what` made them."""
    largest = max(avals, key=lambda aval: aval.nbytes)
    total = sum(aval.nbytes for aval in avals)
    others = f" of {bytes_text(total)} in all" if len(avals) > 1 else ""
    found = _meminfo()
    have = f", got a machine with {bytes_text(found['MemTotal'])}" if "MemTotal" in found else ""
    if "MemAvailable" in found:
        have += f", of which {bytes_text(found['MemAvailable'])} are available"
    return MemoryError(
        f"{what}: needed {bytes_text(largest.nbytes)} of memory for {largest.str_short()}{others}"
        f"{have} (use a smaller batch or a smaller dtype, or compute the result in parts, for "
        f"example with toile.lax.map){place}{here()}"
    )


def check_outputs(name: str, program: Any) -> None:
    """Raise, before a Program is compiled, if its results cannot fit into memory."""
    needed = sum([aval.nbytes for aval in program.out_avals])
    if needed < _LARGE:
        return
    room = capacity()
    if room is not None and needed > room:
        raise program_error(name, program)


_LARGE = 1 << 30  # bytes; for smaller results, the machine's memory is not looked up


def program_error(name: str, program: Any) -> MemoryError:
    """The error for a Program that does not fit: its largest value and the line that made it."""
    name, place = largest_step(name, program)
    return memory_error(name, program.out_avals, place)


def largest_step(name: str, program: Any) -> tuple[str, str]:
    """The operation that makes the largest value of a Program: "DotGeneral in f", and lines that
    say where the user wrote it."""
    made = [(var.aval.nbytes, i, e) for i, e in enumerate(program.equations) for var in e.outs]
    if not made:
        return name, ""
    equation = max(made)[2]
    place = f"\n  in {'/'.join(equation.scope)}" if equation.scope else ""
    if equation.source is not None:
        place += f"\n  made at {equation.source}\n    {equation.source.text()}"
    return f"{type(equation.op).__name__} in {name}", place
