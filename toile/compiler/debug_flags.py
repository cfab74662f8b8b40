"""What TOILE_DEBUG asks the compiler for: a list of words, such as `passes,verify`."""

from __future__ import annotations

import os


def asked_for(what: str) -> bool:
    """Whether TOILE_DEBUG names something."""
    return what in os.environ.get("TOILE_DEBUG", "").split(",")
