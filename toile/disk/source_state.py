"""A digest of the code that makes plans, which is part of the names of plans on disk."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
from pathlib import Path

_DECIDING = ("compiler", "targets", "kernels", "platforms", "disk", "primitives", "control",
             "engine", "transforms")  # folders


@functools.cache
def source_state() -> str:
    """A digest of the sizes and times of toile's files, the time of SciPy, and Python's version."""
    root = Path(__file__).parent.parent
    parts = [sys.version]
    for folder in _DECIDING:
        for place, _, names in sorted(os.walk(root / folder)):
            for name in sorted(n for n in names if n.endswith(".py")):
                found = os.stat(os.path.join(place, name))
                parts.append(f"{place}/{name} {found.st_size} {found.st_mtime_ns}")
    scipy = importlib.util.find_spec("scipy")
    if scipy is not None and scipy.origin:
        parts.append(f"{scipy.origin} {os.stat(scipy.origin).st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
