"""Keys and samplers."""
import toile.numpy as jnp
from toile import Array, random

key = random.key(0)
key, a, b = random.split(key, 3)
noise = random.normal(a, (3, 4), dtype=jnp.float32)
labels = random.randint(b, (3,), 0, 10)
picked = random.choice(a, jnp.arange(5), (2,), replace=False)
mask: Array = random.bernoulli(key, 0.3, (4,))
order = random.permutation(b, 10)
old = random.PRNGKey(1)
