"""Random streams of a module."""
import toile.linen as nn
import toile.numpy as jnp
from toile import random

model = nn.Sequential([nn.Dense(4), nn.Dropout(0.5, deterministic=False), nn.Dense(2)])
key = random.key(0)
params_key, dropout_key = random.split(key)
keys = {"params": params_key, "dropout": dropout_key}
variables = model.init(keys, jnp.zeros((2, 3)))
y = model.apply(variables, jnp.zeros((2, 3)), rngs={"dropout": random.fold_in(dropout_key, 1)})
