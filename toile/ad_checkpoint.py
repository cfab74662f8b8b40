"""checkpoint (remat), its policies, and names for values that policies refer to."""

from toile.api.checkpoint import checkpoint, checkpoint_name, checkpoint_policies, remat

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "remat"]
