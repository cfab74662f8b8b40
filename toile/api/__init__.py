"""What joins the layers: the transformations users call, over trees.

Importing it fills the slots through which operations run the Programs they carry, run on GPUs and
are checked for random keys that are used twice.
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
from toile.api.programs import (
    closure_convert,
    ensure_compile_time_eval,
    eval_shape,
    jit,
    make_jaxpr,
)
from toile.api.vectorization import hessian, jacfwd, jacobian, jacrev, vmap
from toile.control import key_reuse
from toile.engine import checked, gpu_eager, operation, program
from toile.platforms import dispatch as running

program.execution.run = running.run
operation.elsewhere.run = gpu_eager.run
checked.keys.run = key_reuse.run
program.hooks.keys_used = key_reuse.keys_used

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
