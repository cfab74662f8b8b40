"""A program with diffrax; `results` are compared with those on JAX."""

import diffrax as d
import jax
import jax.numpy as jnp

sol = d.diffeqsolve(
    d.ODETerm(lambda t, y, a: -a * y),
    d.Tsit5(),
    0.0,
    2.0,
    0.1,
    jnp.array([1.0, 2.0]),
    args=0.5,
    saveat=d.SaveAt(ts=jnp.linspace(0, 2, 5)),
    stepsize_controller=d.PIDController(1e-5, 1e-6),
)
g = jax.grad(
    lambda a: d.diffeqsolve(
        d.ODETerm(lambda t, y, a: -a * y), d.Dopri5(), 0.0, 1.0, 0.1, 1.0, args=a
    ).ys[0]
)(0.5)
results = [sol.ys, g]
