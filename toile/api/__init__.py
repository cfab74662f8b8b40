"""What joins the layers: the transformations users call, over trees.

Importing it fills the slot through which operations run the Programs they carry.
"""

from toile.api.autodiff import (
    VJPFunction,
    grad,
    jvp,
    linear_transpose,
    linearize,
    value_and_grad,
    vjp,
)
from toile.api.custom import custom_gradient, custom_jvp, custom_vjp
from toile.api.mapping import hessian, jacfwd, jacobian, jacrev, vmap
from toile.api.tracing import closure_convert, ensure_compile_time_eval, eval_shape, jit, make_jaxpr
from toile.backends import running
from toile.engine import gpu_eager, program

program.execution.run = running.run
assert gpu_eager.run  # loaded: eager operations find the GPU through it

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
