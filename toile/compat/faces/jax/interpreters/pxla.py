"""`jax.interpreters.pxla`: names of divided arrays that packages use."""

from toile.engine.sharded import ShardedArray as ShardedDeviceArray

__all__ = ["ShardedDeviceArray"]
