"""Memory of the CPU: how much is available, and the error of a compiled call that needs more.

Before a call fails, memory kept for later calls is freed, and the allocation is tried again. The
report has the planned peak of the call, its largest buffers with the lines that create them, and
the batch that would fit. This module may import the compiler, platforms and the engine.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from toile.engine.buffers import Block, allocate
from toile.engine.program import Program
from toile.engine.source import here
from toile.platforms.cpu.execution import Executable, release_arenas
from toile.platforms.cpu.new_plans import drafted, room_for_results
from toile.platforms.largest_batch import Fit, batch_that_fits
from toile.platforms.memory_plans import PlannedMemory, planned_memory
from toile.platforms.memory_reports import SAVINGS, OutOfMemoryError, largest, size

SHOWN = 5  # largest buffers in the report

if sys.platform == "win32":
    resource: Any = None
else:
    import resource

# ---- what is available


def available() -> int:
    """The bytes that this process can still use; 0 if that is not known."""
    found = [n for n in (_of_system(), _of_group(Path("/sys/fs/cgroup")), _of_limit()) if n >= 0]
    return min(found, default=0)


def _of_system(meminfo: Path = Path("/proc/meminfo")) -> int:
    """What the system can provide without swapping; -1 if it does not say."""
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    try:  # other systems: all memory there is
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return -1


def _of_group(folder: Path) -> int:
    """What is left of the limit of a container; -1 if there is no limit."""
    for most, used in (("memory.max", "memory.current"),
                       ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            limit = int((folder / most).read_text())
            return max(limit - int((folder / used).read_text()), 0)
        except (OSError, ValueError):  # "max": no limit
            continue
    return -1


def _of_limit() -> int:
    """What is left of the limit of address space (`ulimit -v`); -1 if there is none."""
    if resource is None:
        return -1
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return -1
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return -1
    return max(limit - pages * os.sysconf("SC_PAGE_SIZE"), 0)


# ---- running out


def allocated_again(executable: Executable, sizes: Sequence[int]) -> list[Block]:
    """Blocks of these sizes, after freeing what is kept for later calls; the allocation has failed
    before."""
    release_arenas()
    executable.free.clear()
    gc.collect()
    try:
        return [allocate(n) for n in sizes]
    except MemoryError as error:
        raise out_of_memory(executable.program, executable, sum(sizes), error) from None


def out_of_memory(
    program: Program, executable: Any, needed: int, error: BaseException
) -> BaseException:
    """The error for memory that a compiled call could not get."""
    if isinstance(error, OutOfMemoryError):
        return error
    try:
        plan = getattr(executable, "plan", None) or drafted(program)
        memory = planned_memory(plan, room_for_results(program))
        described = SimpleNamespace(
            program=plan.given, plan=plan, arena_bytes=memory.temporaries,
            constant_bytes=memory.constants)
        room = available()
        fit = batch_that_fits(described, room + memory.arguments) if room else None
        text = report(program.name, needed, memory, room, fit)
    except Exception:  # there may not be enough memory for the report either
        text = f"out of memory: {program.name} needed {size(needed)} more"
    return OutOfMemoryError(f"RESOURCE_EXHAUSTED: {text}{here()}")


def report(name: str, needed: int, memory: PlannedMemory, room: int, fit: Fit | None) -> str:
    """The text of the error."""
    lines = [
        f"out of memory: {name} needed {size(needed)} more, and {size(room)} are available",
        f"  planned peak of {name}: {size(memory.total)} (arguments {size(memory.arguments)}, "
        f"results {size(memory.results)}, constants {size(memory.constants)}, temporaries "
        f"{size(memory.temporaries)})",
        "  largest buffers at the peak:",
        *largest(memory.live, SHOWN),
    ]
    if fit is not None:
        lines += [f"  {line}" for line in fit.lines(size)]
    lines.append(f"  (these save memory: {SAVINGS}; toile.plan shows the whole plan)")
    return "\n".join(lines)
