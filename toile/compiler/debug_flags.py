"""What TOILE_DEBUG turns on in the compiler: a list of words, such as `passes,verify`."""

from __future__ import annotations

import os


def asked_for(what: str) -> bool:
    """Whether TOILE_DEBUG contains this word."""
    return what in os.environ.get("TOILE_DEBUG", "").split(",")
