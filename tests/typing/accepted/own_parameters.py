"""A layer with parameters of its own, and a variable that is no parameter."""
import toile.linen as nn
import toile.numpy as jnp
from toile import Array, lax
from toile.nn import initializers


class Scale(nn.Module):
    """Multiplies each feature, and counts its calls."""
    scale_init: initializers.Initializer = initializers.ones

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """The scaled input."""
        scale = self.param("scale", self.scale_init, (x.shape[-1],), jnp.float32)
        calls = self.variable("counters", "calls", lambda: jnp.zeros((), jnp.int32))
        calls.value = calls.value + 1
        return lax.mul(x, jnp.broadcast_to(scale, x.shape))

scale = Scale(scale_init=initializers.normal(0.1))
