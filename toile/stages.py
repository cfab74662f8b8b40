"""The stages of a jitted function: traced, lowered, compiled."""

from toile.staging.jit import PjitFunction as Wrapped
from toile.staging.stages import ArgInfo, Compiled, Lowered
from toile.staging.stages import TracedStage as Traced

CompilerOptions = dict[str, str | bool]

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
