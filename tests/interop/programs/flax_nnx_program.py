"""A program with flax.nnx; `results` are compared with those on JAX."""

import jax.numpy as jnp
import optax
from flax import nnx


class M(nnx.Module):
    def __init__(s, rngs):
        s.l = nnx.Linear(3, 4, rngs=rngs)
        s.o = nnx.Linear(4, 1, rngs=rngs)

    def __call__(s, x):
        return s.o(nnx.relu(s.l(x)))


m = M(nnx.Rngs(0))
x = jnp.ones((2, 3))
opt = nnx.Optimizer(m, optax.adam(1e-2), wrt=nnx.Param)


@nnx.jit
def step(m, opt):
    l, g = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(m)
    opt.update(m, g)
    return l


results = [step(m, opt) for _ in range(5)]
