"""Loops and branches on a GPU: steps (see `compiler.plan.control_flow`)."""

from __future__ import annotations

from toile.compiler.plan.control_flow import lower_cond, lower_scan, lower_while

__all__ = ["lower_cond", "lower_scan", "lower_while"]
