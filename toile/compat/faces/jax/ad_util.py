"""`jax.ad_util`: the public names of `jax._src.ad_util`."""

from toile.compat.faces.jax._src.ad_util import (
    Zero,
    add_jaxvals,
    instantiate,
    stop_gradient_p,
    zeros_like_aval,
)

__all__ = [
    "Zero", "add_jaxvals", "instantiate", "stop_gradient_p", "zeros_like_aval",
]
