"""Looking into traced code."""
import toile
import toile.numpy as jnp
from toile import Array
from toile.experimental import checkify


@toile.jit
def f(x: Array) -> Array:
    """Prints while it runs."""
    toile.debug.print("x = {}", x)
    return jnp.log(x)

with toile.debug_nans(False):
    y = f(jnp.ones(2))
print(toile.make_jaxpr(f)(jnp.ones(2)))
error, value = checkify.checkify(f)(jnp.ones(2))
error.throw()
toile.config.update("jax_enable_x64", False)
