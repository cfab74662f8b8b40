"""`flax.deprecated`: `flax.nn` under the name that it had at last."""

from toile.compat.removed import flax_nn as nn

__all__ = ["nn"]
