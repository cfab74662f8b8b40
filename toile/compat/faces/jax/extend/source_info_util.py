"""`jax.extend.source_info_util`: which files are library code."""

from toile.traceback_util import register_exclusion

__all__ = ["register_exclusion"]
