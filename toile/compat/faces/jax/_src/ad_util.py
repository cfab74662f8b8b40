"""`jax._src.ad_util`: symbolic zeros, sums of tangents, and the primitive of stop_gradient."""

from toile.compat.faces.jax.interpreters.ad import (
    Zero,
    add_tangents,
    instantiate_zeros,
    zeros_like_aval,
)
from toile.compat.jax_primitives import stop_gradient_p

add_jaxvals = add_tangents
instantiate = instantiate_zeros

__all__ = [
    "Zero", "add_jaxvals", "instantiate", "stop_gradient_p", "zeros_like_aval",
]
