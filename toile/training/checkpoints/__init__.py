"""Training checkpoints, with Flax's functions, file format and file names (`checkpoint_<step>`).

Saving is atomic and, on request, asynchronous. If a save is interrupted, the previous checkpoint
remains intact. Files are read and written by `toile.serialization`.
"""

from toile.training.checkpoints.asynchronous import AsyncManager
from toile.training.checkpoints.names import (
    MODULE_NUM_RE,
    MP_ARRAY_POSTFIX,
    SCHEME_RE,
    SIGNED_FLOAT_RE,
    UNSIGNED_FLOAT_RE,
    available_steps,
    latest_checkpoint,
    natural_sort,
    safe_normpath,
)
from toile.training.checkpoints.restore import convert_pre_linen, restore_checkpoint
from toile.training.checkpoints.save import save_checkpoint, save_checkpoint_multiprocess

__all__ = [
    "MODULE_NUM_RE", "MP_ARRAY_POSTFIX", "SCHEME_RE", "SIGNED_FLOAT_RE", "UNSIGNED_FLOAT_RE",
    "AsyncManager", "available_steps", "convert_pre_linen", "latest_checkpoint", "natural_sort",
    "restore_checkpoint", "safe_normpath", "save_checkpoint", "save_checkpoint_multiprocess",
]
