"""`pjit`, an older name for `jit`."""

from toile.api.programs import jit as pjit
from toile.lax import with_sharding_constraint

__all__ = ["pjit", "with_sharding_constraint"]
