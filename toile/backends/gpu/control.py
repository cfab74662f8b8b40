"""Loops and branches on a GPU: their steps are issued turn by turn (see `compiler.looping`)."""

from __future__ import annotations

from toile.compiler.looping import lower_cond, lower_scan, lower_while

__all__ = ["lower_cond", "lower_scan", "lower_while"]
