"""Arrays: creation, arithmetic, indexing, methods."""
import numpy as np

import toile.numpy as jnp
from toile import Array

x = jnp.arange(12.0).reshape(3, 4)
y = x.at[0, 1:].add(2.0).at[:, 0].set(0)
z = (x > 3) & (x < 9)
rows: Array = x[z.any(axis=1)]
mean, std = x.mean(0), x.std(0, ddof=1)
normal = (x - mean) / (std + 1e-6)
as_numpy: np.ndarray = np.asarray(normal)
number: float = float(x.sum())
index: int = int(jnp.argmax(x))
first, *rest = x
for row in x:
    print(row.shape, row.dtype, row.tolist())
joined = jnp.concatenate([x, y], axis=1).astype(jnp.bfloat16)
stacked = jnp.stack([x, y]).transpose(1, 0, 2).swapaxes(0, 2)
product = x @ x.T + np.eye(3)
print(jnp.einsum("ij,kj->ik", x, y), jnp.linalg.inv(product), jnp.fft.fft(x).real, round(number, 2))
