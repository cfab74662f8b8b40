"""`jax.extend`: the parts used by packages that define their own primitives."""

from toile.compat.faces.jax.extend import (
    backend,
    core,
    ifrt_programs,
    linear_util,
    source_info_util,
)

__all__ = ["backend", "core", "ifrt_programs", "linear_util", "source_info_util"]
