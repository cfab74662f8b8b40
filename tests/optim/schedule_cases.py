"""Schedules of Optax, over steps before, at and after each of their corners."""

import numpy as np

from tests.optim.recorded import case

STEPS = np.array([0, 1, 2, 5, 9, 10, 11, 15, 29, 30, 31, 60, 84, 85, 99, 100, 101, 1000], np.int32)


def schedule(name, make):
    """A row for int32 steps, one for float32 steps, and one for Python steps (results, types)."""
    over = lambda L, steps, make=make: L.jax.vmap(make(L.schedules))(steps)
    case(name, over, STEPS, grad=False, rtol=2e-6)
    case(name + "_float", over, STEPS.astype(np.float32) + 0.25, rtol=2e-5, atol=1e-5)
    python = lambda L, make=make: [L.jnp.asarray(make(L.schedules)(s)) for s in (0, 7, 50)]
    case(name + "_python", python, grad=False, rtol=2e-6)


CYCLE = {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 5, "decay_steps": 30}

schedule("constant", lambda S: lambda s: S.constant_schedule(0.1)(s) + 0.0 * s)
schedule("linear", lambda S: S.linear_schedule(1.0, 0.1, 30))
schedule("linear_up", lambda S: S.linear_schedule(0, 3, 30, 10))
schedule("polynomial", lambda S: S.polynomial_schedule(1.0, 0.1, 2, 30, 10))
schedule("polynomial_root", lambda S: S.polynomial_schedule(1.0, 0.1, 0.5, 90, -3))
schedule("exponential", lambda S: S.exponential_decay(1.0, 10, 0.5))
schedule("exponential_stairs", lambda S: S.exponential_decay(1.0, 10, 0.5, 5, True))
schedule("exponential_floor", lambda S: S.exponential_decay(1.0, 10, 0.5, end_value=0.2))
schedule("exponential_ceiling", lambda S: S.exponential_decay(1.0, 30, 1.5, -2, end_value=3.0))
schedule("cosine", lambda S: S.cosine_decay_schedule(0.3, 100))
schedule("cosine_power", lambda S: S.cosine_decay_schedule(0.3, 60, 0.1, 2.0))
schedule("piecewise", lambda S: S.piecewise_constant_schedule(1.0, {30: 0.1, 10: 0.5, 85: 2}))
schedule("interpolate_linear",
         lambda S: S.piecewise_interpolate_schedule("linear", 1.0, {30: 0.1, 10: 0.5}))  # fmt: skip
schedule("interpolate_cosine",
         lambda S: S.piecewise_interpolate_schedule("cosine", 2.0, {10: 0.5, 85: 2.0}))  # fmt: skip
schedule("linear_onecycle", lambda S: S.linear_onecycle_schedule(100, 0.5))
schedule("linear_onecycle_options",
         lambda S: S.linear_onecycle_schedule(60, 0.5, 0.2, 0.5, 10.0, 100.0))  # fmt: skip
schedule("cosine_onecycle", lambda S: S.cosine_onecycle_schedule(100, 0.5))
schedule("cosine_onecycle_options",
         lambda S: S.cosine_onecycle_schedule(60, 0.5, 0.5, 10.0, 100.0))  # fmt: skip
schedule("warmup_constant", lambda S: S.warmup_constant_schedule(0.0, 0.7, 10))
schedule("warmup_cosine", lambda S: S.warmup_cosine_decay_schedule(0.0, 0.7, 10, 85, 0.1, 1.5))
schedule("warmup_cosine_zero", lambda S: S.warmup_cosine_decay_schedule(1.0, 0.0, 10, 85))
schedule("warmup_exponential",
         lambda S: S.warmup_exponential_decay_schedule(
             0.0, 0.7, 10, 20, 0.9, 5, True, 0.5))  # fmt: skip
schedule("join", lambda S: S.join_schedules(
    [S.linear_schedule(0.0, 1.0, 10), S.cosine_decay_schedule(1.0, 50), lambda s: 0.01 * s],
    [10, 60]))  # fmt: skip
schedule("sgdr", lambda S: S.sgdr_schedule(
    [CYCLE, {**CYCLE, "peak_value": 0.5}, {**CYCLE, "end_value": 0.05}]))  # fmt: skip
