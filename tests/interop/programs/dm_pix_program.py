"""A program with dm_pix; `results` are compared with those on JAX."""

import dm_pix as pix
import jax

x = jax.random.uniform(jax.random.PRNGKey(0), (8, 8, 3))
results = [
    pix.adjust_hue(x, 0.2),
    pix.random_crop(jax.random.PRNGKey(1), x, (4, 4, 3)),
    pix.gaussian_blur(x, 1.0, 3),
]
