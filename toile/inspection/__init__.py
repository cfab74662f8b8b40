"""Inspecting compiled functions: `explain` shows what a call runs; `profile` measures its cost."""
# May import displays, parallel, staging, platforms, targets, the compiler, control, primitives and
# the engine.

from toile.inspection.explain import Explanation, explain
from toile.inspection.profiles import Profile, profile

__all__ = ["Explanation", "Profile", "explain", "profile"]
