"""Chains of transformations, schedules, masks."""
import toile.numpy as jnp
from toile import optim

schedule = optim.warmup_cosine_decay_schedule(0.0, 1e-3, warmup_steps=10, decay_steps=100)
tx = optim.chain(
    optim.clip_by_global_norm(1.0),
    optim.adamw(schedule, b1=0.9, weight_decay=1e-4, mask={"w": True, "b": False}),
)
params = {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}
state = tx.init(params)
updates, state = tx.update({"w": jnp.ones((2, 2)), "b": jnp.ones(2)}, state, params)
params = optim.apply_updates(params, updates)
loss = optim.softmax_cross_entropy_with_integer_labels(jnp.zeros((4, 3)), jnp.zeros(4, jnp.int32)).mean()
lr = float(schedule(5))
