"""`jax._src.traceback_util`: which files are library code."""

from types import FrameType

from toile.engine.source import is_internal
from toile.traceback_util import UnfilteredStackTrace, api_boundary, register_exclusion

__all__ = ["UnfilteredStackTrace", "api_boundary", "include_frame", "register_exclusion"]


def include_frame(frame: FrameType) -> bool:
    """Whether a frame is code of the user."""
    return not is_internal(frame.f_code)
