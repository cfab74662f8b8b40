"""vmap with axes, over trees, nested."""
import toile
import toile.numpy as jnp
from toile import Array


def predict(params: dict[str, Array], x: Array) -> Array:
    """One example."""
    return jnp.tanh(x @ params["w"])

params = {"w": jnp.ones((3, 2))}
batch = toile.vmap(predict, in_axes=(None, 0))(params, jnp.ones((5, 3)))
pairs = toile.vmap(toile.vmap(jnp.dot, in_axes=(None, 0)), in_axes=(0, None))
table = pairs(jnp.ones((4, 3)), jnp.ones((5, 3)))
total = toile.vmap(lambda x: x / toile.lax.psum(x, "i"), axis_name="i")(jnp.arange(4.0))
