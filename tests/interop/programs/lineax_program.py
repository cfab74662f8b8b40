"""A program with lineax; `results` are compared with those on JAX."""

import jax
import jax.numpy as jnp
import lineax as lx

A = jax.random.normal(jax.random.PRNGKey(0), (4, 4))
b = jnp.arange(4.0)
results = [
    lx.linear_solve(lx.MatrixLinearOperator(A), b).value,
    lx.linear_solve(
        lx.MatrixLinearOperator(A @ A.T + jnp.eye(4), lx.positive_semidefinite_tag),
        b,
        lx.CG(1e-6, 1e-6),
    ).value,
    jax.grad(lambda b: lx.linear_solve(lx.MatrixLinearOperator(A), b).value.sum())(b),
]
