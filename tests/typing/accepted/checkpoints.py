"""Saving and restoring."""
import tempfile

import toile.numpy as jnp
from toile import serialization
from toile.training import checkpoints

params = {"w": jnp.ones(3)}
data: bytes = serialization.to_bytes(params)
restored = serialization.from_bytes(params, data)
state = serialization.to_state_dict(params)
with tempfile.TemporaryDirectory() as folder:
    path = checkpoints.save_checkpoint(folder, params, step=1, keep=2)
    latest = checkpoints.latest_checkpoint(folder)
    params = checkpoints.restore_checkpoint(folder, params)
