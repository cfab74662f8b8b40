"""The stages of a jitted function: traced, lowered, compiled."""

from toile.staging.jit import PjitFunction as Wrapped
from toile.staging.stages import ArgInfo, Compiled, Lowered
from toile.staging.stages import TracedStage as Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
