"""The types that users annotate with."""
import numpy as np

import toile.numpy as jnp
from toile import Array
from toile.typing import ArrayLike, DTypeLike


def normalized(x: ArrayLike, dtype: DTypeLike = jnp.float32) -> Array:
    """An array of unit length."""
    x = jnp.asarray(x, dtype)
    return x / jnp.linalg.norm(x)

for value in (1.0, np.ones(3), jnp.ones(3), 2, np.float32(1)):
    normalized(value)
normalized(np.ones(2), "bfloat16")
normalized(np.ones(2), np.float16)
