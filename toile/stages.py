"""The stages of a jitted function: traced, lowered, compiled."""

from toile.staging.jit import ArgInfo, Compiled, Lowered
from toile.staging.jit import PjitFunction as Wrapped
from toile.staging.jit import TracedStage as Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
