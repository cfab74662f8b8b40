"""The transformations that users call, such as `grad`, `vmap` and `jit`; they accept trees.

Importing this package registers the platforms with the engine.
"""

import toile.platforms  # noqa: F401 - makes them known
from toile.api.autodiff import grad, value_and_grad
from toile.api.custom import custom_gradient, custom_jvp, custom_vjp
from toile.api.linear_maps import VJPFunction, jvp, linear_transpose, linearize, vjp
from toile.api.programs import (
    closure_convert,
    ensure_compile_time_eval,
    eval_shape,
    jit,
    make_jaxpr,
)
from toile.api.vectorization import hessian, jacfwd, jacobian, jacrev, vmap

__all__ = [
    "VJPFunction",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "ensure_compile_time_eval",
    "eval_shape",
    "grad",
    "hessian",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "linear_transpose",
    "linearize",
    "make_jaxpr",
    "value_and_grad",
    "vjp",
    "vmap",
]
