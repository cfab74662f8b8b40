"""`jax._src.dispatch`: waiting for effects."""

from toile.api.callbacks import effects_barrier as wait_for_tokens

__all__ = ["wait_for_tokens"]
