"""Inspecting compiled functions: `explain` shows what a call runs, `plan` predicts how much memory
it needs, and `profile` measures its cost."""
# This package may import displays, parallel, staging, platforms, targets, the compiler, control,
# primitives and the engine.

from toile.inspection.explain import Explanation, explain
from toile.inspection.peak_memory import MemoryPlan, plan
from toile.inspection.profiles import Profile, profile

__all__ = ["Explanation", "MemoryPlan", "Profile", "explain", "plan", "profile"]
